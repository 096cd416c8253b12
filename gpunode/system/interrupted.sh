# Prints of each change that was begun and not ended interrupted=NAME, or running=NAME where its unit is at work; of one
# that failed and was put back failed=NAME JOURNAL; of one that was cut off before it began stale=NAME; left=PATH of
# what was left beside a file that was being written; and newer=NAME of a change whose journal a newer gpunode wrote.
# Takes FOLDER, where the journals are; LEFT, globs of what is left next to files; AGED, what find gets of its age.

busy=
at_work() {
  case "$(systemctl is-active "gpunode-$1.service")" in
    active|activating|deactivating|reloading) busy=yes;;
    *) false;;
  esac
}
for journal in "$FOLDER"/*.json; do
  state=; [ ! -f "$journal" ] || read -r state < "$journal"
  name=${journal##*/}; name=${name%.json}
  # Nobody waits for it any more.
  case "$name" in *.given-up) continue;; esac
  # A journal without a version is of the first one; gpunode/system/transaction.py has the newest that is known.
  version=${state#*'"schema": '}; version=${version%%[!0-9]*}
  [ "${version:-1}" -le 1 ] || { echo "newer=$name"; continue; }
  case "$state" in
    *'"state": "began"'*) ;;
    *'"state": "failed"'*) echo "failed=$name $state"; continue;;
    *) continue;;
  esac
  # Rare: else each costs a program.
  if at_work "$name"; then echo "running=$name"; else echo "interrupted=$name"; fi
done
for file in "$FOLDER"/*.new "$FOLDER"/*.before "$FOLDER"/*.sh.[0-9]*; do
  [ -e "$file" ] || continue
  name=${file##*/}
  case "$name" in
    # Of a run that is about to begin.
    *.sh.*) [ ! -d "/proc/${name##*.}" ] || continue; name=${name%.sh.*};;
    *.before) name=${name%.before};;
    *) name=${name%.new}; name=${name%.json};;
  esac
  at_work "$name" || echo "stale=$name"
done
[ -n "$busy" ] || for file in $LEFT; do
  [ -e "$file" ] || [ -L "$file" ] || continue
  case "$file" in
    # Its maker's process stands in its name.
    */.gpunode-cdi.*) maker=${file##*/.gpunode-cdi.}; [ ! -d "/proc/${maker%%.*}" ] || continue;;
  esac
  # Another controller may be writing it at this moment.
  # shellcheck disable=SC2086  # Several words, or none.
  [ -z "$(find "$file" -maxdepth 0 $AGED)" ] || echo "left=$file"
done
