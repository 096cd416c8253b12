# Takes keys out of the keyring $path, between keep_beside.sh and swap.sh; arguments: their fingerprints.
# Through a keyring of its own: gpg edits no armored file, and would leave a kbx where apt wants plain packets.

# shellcheck disable=SC2154  # set by whoever sends it

home=$(mktemp -d); trap 'rm -rf "$keep" "$new" "$home"' EXIT
ring() { gpg --homedir "$home" --batch --yes --quiet --no-autostart "$@"; }
ring --import "$path"
ring --delete-keys "$@"
case "$path" in *.asc) ring --armor --export > "$new";; *) ring --export > "$new";; esac
[ -s "$new" ] || {
  echo "gpunode: $path holds no other key, so that it cannot be kept without the distrusted ones; it was not" \
    "changed" >&2
  echo "gpunode: remedy: look at it (\`gpg --show-keys $path\` on the node), remove the file, and run again" >&2
  exit 1; }
