# A function: in_stream COMMAND... runs it as if the module stream STREAM (MODULE:STREAM; empty: none) were enabled. It
# makes $folder. The node's own choice of streams stays: files are bound over it in a mount namespace that ends with the
# probe.
# What is asked reads the metadata as they are.

folder=$(mktemp -d) || exit 0; trap 'rm -rf "$folder"' EXIT; trap 'exit 1' HUP INT TERM PIPE
mkdir "$folder/modules.d"; cp -a /etc/dnf/modules.d/. "$folder/modules.d/" 2>/dev/null
module=${STREAM%%:*}
if [ -n "$STREAM" ] && dnf -q -C '--setopt=*.skip_if_unavailable=1' module list "$module" >/dev/null 2>&1; then
  printf '[%s]\nname=%s\nstream=%s\nprofiles=\nstate=enabled\n' "$module" "$module" "${STREAM#*:}" \
    > "$folder/modules.d/$module.module"
fi
in_stream() {
  [ -d /etc/dnf/modules.d ] || { "$@"; return; }
  # shellcheck disable=SC2016
  unshare --mount sh -c 'mount --bind "$1" /etc/dnf/modules.d && shift && exec "$@"' sh "$folder/modules.d" "$@"
}
