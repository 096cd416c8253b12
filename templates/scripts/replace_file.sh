# Gives the file $path, which is somebody's, the text that stands as base64 in standard input, and leaves it his: mode,
# owner, link. One that is no more what was $read (as_read) stays. On top of placing.sh and STANDARD_INPUT.

# shellcheck disable=SC2154  # $path and $read are the command's.
target=$(target_of "$path") || {
  echo "gpunode: $path is a link that leads nowhere; nothing was changed" >&2
  echo "gpunode: remedy: remove it on the node, and run again" >&2; exit 1; }
roots_alone "$target"
as_read "$target" "$read"
mkdir -p "$(dirname "$target")"
umask 077
standard_input > "$target.gpunode-new"
as_before "$target.gpunode-new" "$target"
sync "$target.gpunode-new"; mv -fT "$target.gpunode-new" "$target"
