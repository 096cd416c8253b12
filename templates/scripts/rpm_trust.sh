# Writes the key and the .repo file of a repository, on top of pinned_key.sh.
# It takes $key, $source, $stamp (files), $key_url, $fingerprint, $name and $text, the .repo file's.

# shellcheck disable=SC2154  # set by whoever sends it

temporary=$(mktemp -d); trap 'rm -rf "$temporary"' EXIT
mkdir -p "$(dirname "$key")" "$(dirname "$source")" "$(dirname "$stamp")"
pinned_key "$key" "$temporary/key" "$key_url" "$fingerprint" "$name" --armor
install -m 644 -o root -g root "$temporary/key" "$key.gpunode-new"
mv -f -T "$key.gpunode-new" "$key"
printf '%s' "$text" > "$source.gpunode-new"; chmod 644 "$source.gpunode-new"; mv -f "$source.gpunode-new" "$source"
