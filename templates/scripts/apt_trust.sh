# Trusts and reads a repository of apt's, on top of apt_get.sh, apt_lists.sh, pinned_key.sh and index_date.sh.
# It takes $keyring, $source, $stamp (files), $key_url, $fingerprint, $name and $text, the source's.

# shellcheck disable=SC2154  # set by whoever sends it

temporary=$(mktemp -d); trap 'rm -rf "$temporary"' EXIT
mkdir -p "$(dirname "$keyring")" "$(dirname "$source")" "$(dirname "$stamp")"
pinned_key "$keyring" "$temporary/keyring" "$key_url" "$fingerprint" "$name"
install -m 644 -o root -g root "$temporary/keyring" "$keyring.gpunode-new"
mv -f -T "$keyring.gpunode-new" "$keyring"
printf '%s' "$text" > "$source.gpunode-new"; chmod 644 "$source.gpunode-new"; mv -f "$source.gpunode-new" "$source"
read_lists apt-get -q -o APT::Update::Error-Mode=any -o Dir::Etc::sourcelist="$source" \
  -o Dir::Etc::sourceparts=- -o APT::Get::List-Cleanup=0 || {
  echo "gpunode: the repository $name could not be read or verified; nothing was installed" >&2; exit 1; }
not_older "$name"
cat "$source" "$keyring" | sha256sum | cut -d' ' -f1 > "$stamp"
