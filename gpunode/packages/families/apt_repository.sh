# How a repository of ours is trusted by apt, and what else the node trusts in its place; on top of keyring.sh.
# Takes KEY, LIST and STAMP (files), NEEDLE, a part of the address, and KEYS, an expression of grep's for distrusted
# keys.
# Prints fingerprint=, permissions=MODE USER:GROUP, source=BASE64, digest=SHA256, refreshed=SHA256, architecture=,
# other=PATH BASE64 of each other list with that address, trusted=KEY PATH of each distrusted key.
# All world-trusted keys are listed by one gpg; only where a distrusted one is among them is each file asked.

# Names that apt itself ignores are none of ours either; what is left needs no quoting in our answer's lines.
is_read() { [ -f "$1" ] || return 1; case "${1##*/}" in *[!A-Za-z0-9_.-]*) return 1;; esac; }
[ -f "$KEY" ] && { primary_keys "$KEY" | sed s/^/fingerprint=/; echo "permissions=$(stat -c '%a %U:%G' "$KEY")"; }
[ -f "$LIST" ] && echo "source=$(file_base64 "$LIST")"
[ -f "$LIST" ] && [ -f "$KEY" ] && echo "digest=$(cat "$LIST" "$KEY" | sha256sum | cut -d" " -f1)"
[ -f "$STAMP" ] && echo "refreshed=$(cat "$STAMP")"
echo "architecture=$(dpkg --print-architecture)"
for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources; do
  is_read "$file" && [ "$file" != "$LIST" ] || continue
  grep -qiF -e "$NEEDLE" "$file" && echo "other=$file $(file_base64 "$file")"
done
set --
for file in /etc/apt/trusted.gpg /etc/apt/trusted.gpg.d/*.gpg /etc/apt/trusted.gpg.d/*.asc; do
  ! is_read "$file" || set -- "$@" "$file"
done
if [ "$#" -gt 0 ] && primary_keys "$@" | grep -qE -e "$KEYS"; then
  for file in "$@"; do
    primary_keys "$file" | sed "s|\$| $file|; s/^/trusted=/"
  done
fi
