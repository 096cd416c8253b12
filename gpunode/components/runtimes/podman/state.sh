# Prints the installed OCI runtimes, podman's version, and its configuration files in the order in which they count.
# Of podman only its version is read: `podman info` would create its storage.

for program in crun runc; do
  ! command -v "$program" > /dev/null || echo "program=$program"
done
command -v podman > /dev/null || exit 0
printed podman "$(timeout -k 2 10 podman --version)"
etc=/etc/containers/containers.conf
for file in /usr/share/containers/containers.conf "$etc" "$etc".d/*.conf; do
  [ ! -f "$file" ] || echo "file=$file $(file_base64 "$file")"
done
