# How a repository of ours is trusted by dnf or zypper; on top of keyring.sh and of `trusted`, which fails where the
# manager does not trust the key in KEY, so that nothing would be read: the repository then counts as not refreshed.
# Takes KEY, REPO and STAMP (files), NEEDLE, a part of the address, and FOLDER, that of the .repo files.
# Prints fingerprint=, permissions=MODE USER:GROUP, source=BASE64, digest=SHA256, refreshed=SHA256, other=PATH BASE64.

[ -f "$KEY" ] && { primary_keys "$KEY" | sed s/^/fingerprint=/; echo "permissions=$(stat -c '%a %U:%G' "$KEY")"; }
[ -f "$REPO" ] && echo "source=$(file_base64 "$REPO")"
[ -f "$REPO" ] && [ -f "$KEY" ] && trusted && echo "digest=$(cat "$REPO" "$KEY" | sha256sum | cut -d" " -f1)"
[ -f "$STAMP" ] && echo "refreshed=$(cat "$STAMP")"
for file in "$FOLDER"/*.repo; do
  [ -f "$file" ] || continue; case "${file##*/}" in *[!A-Za-z0-9_.-]*) continue;; esac
  [ "$file" = "$REPO" ] && continue
  grep -qiF -e "$NEEDLE" "$file" && echo "other=$file $(file_base64 "$file")"
done
