# Clears what was left of transactions that did not begin, on top of keeping.sh; arguments: their names. $folder is
# theirs.

# shellcheck disable=SC2154  # $folder is the command's.
for name; do
  case "$(systemctl is-active "gpunode-$name.service")" in active|activating|deactivating|reloading) continue;; esac
  clear_checkpoint "$folder" "$name"
done
