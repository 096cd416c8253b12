# Takes keys out of the keyring $path, between keep_beside.sh and swap.sh; arguments: their fingerprints.
# Through a keyring of its own: gpg edits no armored file, and would leave a kbx where apt wants plain packets.

# shellcheck disable=SC2154  # set by whoever sends it

home=$(mktemp -d); trap 'rm -rf "$keep" "$new" "$home"' EXIT
ring() { gpg --homedir "$home" --batch --yes --quiet --no-autostart "$@"; }
ring --import "$path"
ring --delete-keys "$@"
case "$path" in *.asc) ring --armor --export > "$new";; *) ring --export > "$new";; esac
[ -s "$new" ] || { echo "gpunode: gpg left no key of $path; it was not changed" >&2; exit 1; }
