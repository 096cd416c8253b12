# Boots the node by a timer of systemd's: the command has ended and the connection is closed when the node goes down.
# What is tried ($attempt) is written to $record first.

# shellcheck disable=SC2154  # set by whoever sends it

mkdir -p "${record%/*}"
printf '%s\n' "$attempt" > "$record.new"
sync "$record.new"; mv -f "$record.new" "$record"
systemd-run --quiet --collect --on-active=2 --timer-property=AccuracySec=100ms systemctl reboot
