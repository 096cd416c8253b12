# Prints which runtimes of containers are there, podman's version, and each of its files of settings in the order in
# which they count. Podman itself is asked for its version alone: `podman info` would make its storage.

for program in crun runc; do
  ! command -v "$program" > /dev/null || echo "program=$program"
done
command -v podman > /dev/null || exit 0
printed podman "$(timeout -k 2 10 podman --version)"
etc=/etc/containers/containers.conf
for file in /usr/share/containers/containers.conf "$etc" "$etc".d/*.conf; do
  [ ! -f "$file" ] || echo "file=$file $(file_base64 "$file")"
done
