# Keeps the file $path beside itself as $keep, and makes a copy of it, $new, to be changed; swap.sh ends it.

# shellcheck disable=SC2154  # $path is the command's.
keep=$(mktemp "$path.gpunode-kept.XXXXXX"); new="$path.gpunode-new"
trap 'rm -f "$keep" "$new"' EXIT
cp -p "$path" "$keep"; cp -p "$path" "$new"
