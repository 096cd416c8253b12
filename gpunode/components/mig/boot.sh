# Prints file=PATH SHA-256 of SERVICE and SCRIPT, the record as record=BASE64 with its time, recorded=, or empty=yes;
# what gpunode booted the node for, attempt=; and how the unit NAME stands, active= and enabled=. Takes also RECORD and
# REBOOTS, the paths of the two records.

set --
for file in "$SERVICE" "$SCRIPT"; do [ ! -f "$file" ] || set -- "$@" "$file"; done
if [ "$#" -gt 0 ]; then
  sha256sum -- "$@" | while read -r digest file; do echo "file=$file $digest"; done
fi
if [ -f "$RECORD" ]; then
  if [ -s "$RECORD" ]; then echo "record=$(file_base64 "$RECORD")"; else echo empty=yes; fi
  echo "recorded=$(stat -c %Y "$RECORD")"
fi
if [ -f "$REBOOTS" ]; then
  attempt=; read -r attempt < "$REBOOTS"; echo "attempt=$attempt"
fi
if unit "$NAME"; then
  says ActiveState; echo "active=$SAID"
  says UnitFileState; echo "enabled=$SAID"
fi
