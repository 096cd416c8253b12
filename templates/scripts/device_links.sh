# Makes the links in /dev/char that lead to $devices.

# shellcheck disable=SC2154  # set by whoever sends it

mkdir -p /dev/char
for device in $devices; do
  ln -sfnT "$device" "/dev/char/$((0x$(stat -c %t "$device"))):$((0x$(stat -c %T "$device")))"
done
