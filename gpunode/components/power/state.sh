# Prints what gpunode keeps of power limits and clocks. Takes SCRIPT and UNIT, the paths of its files, and NOTE, where
# the script notes which clocks it locked; asks for the unit gpunode-power.service. file=PATH SHA-256, foreign=PATH,
# rule=LINE of the script, UnitFileState=, note=LINE, and module=, the number that tells one load of nvidia from another
# (gpunode/components/power/state.py).
#
# A node of which none of it is asked for has none of it, and starts no program here.

ours() {
  count=0
  while IFS= read -r line && [ "$count" -lt 4 ]; do
    case "$line" in '# Written by gpunode'*) return 0;; esac
    count=$((count + 1))
  done < "$1"
  return 1
}
set --
for file in "$SCRIPT" "$UNIT"; do
  [ -e "$file" ] || continue
  if [ -f "$file" ] && ours "$file"; then set -- "$@" "$file"; else echo "foreign=$file"; fi
done
if [ $# -gt 0 ]; then
  sha256sum -- "$@" | while IFS=' ' read -r digest path; do echo "file=$path $digest"; done
  if [ "$1" = "$SCRIPT" ]; then
    inside=
    while IFS= read -r line; do
      case "$line" in
        "rules='"*) inside=yes; line=${line#"rules='"};;
        \') break;;
      esac
      [ -z "$inside" ] || printf 'rule=%s\n' "${line%\'}"
      case "$line" in *\') break;; esac
    done < "$SCRIPT"
  fi
fi
if unit gpunode-power.service; then says UnitFileState; echo "UnitFileState=$SAID"; fi
if [ -r "$NOTE" ] && [ -d /sys/module/nvidia ]; then
  while IFS= read -r line; do printf 'note=%s\n' "$line"; done < "$NOTE"
  # The kernel numbers the folder anew at each load; that of other file systems has a time of birth.
  echo "module=$(stat -c '%i %w' /sys/module/nvidia)"
fi
