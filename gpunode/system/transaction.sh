# How the last transaction of a name stands, and whether its unit is at work: by what all ask systemd about it.
# Takes UNIT and JOURNAL, a file. Prints path=, journal=BASE64, unit=STATE, by=WORDS.

active='' by=''
unit "$UNIT" && { says ActiveState; active=$SAID; says Description; by=$SAID; }
if [ -e "$JOURNAL" ]; then
  # One that has begun is asked about where its journal is read: another controller's may have begun in between.
  if grep -qF '"state": "began"' "$JOURNAL"; then
    active=$(systemctl show -p ActiveState --value "$UNIT")
    by=$(systemctl show -p Description --value "$UNIT")
  fi
  echo "path=$JOURNAL"; echo "journal=$(file_base64 "$JOURNAL")"
fi
[ -z "$active" ] || { echo "unit=$active"; echo "by=$by"; }
