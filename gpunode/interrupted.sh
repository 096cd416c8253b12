# Prints of each change that was begun and not ended interrupted=NAME, or running=NAME where its unit is at work. Takes
# FOLDER, where the journals are.

for journal in "$FOLDER"/*.json; do
  state=; [ ! -f "$journal" ] || read -r state < "$journal"
  case "$state" in *'"state": "began"'*) ;; *) continue;; esac
  name=${journal##*/}; name=${name%.json}
  # Nobody waits for it any more.
  case "$name" in *.given-up) continue;; esac
  # Rare: else each costs a program.
  case "$(systemctl is-active "gpunode-$name.service")" in
    active|activating|deactivating|reloading) echo "running=$name";;
    *) echo "interrupted=$name";;
  esac
done
