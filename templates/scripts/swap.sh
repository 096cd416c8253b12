# Behind keep_beside.sh: $new takes the place of $path, whose old text is kept as $path$suffix; $reason says why.

# shellcheck disable=SC2154  # They are the command's, and those of keep_beside.sh.
sync "$new"; mv -T --backup=numbered -- "$keep" "$path$suffix"; mv -f -T -- "$new" "$path"
echo "gpunode: $path is changed, its old text is $path$suffix: it $reason"
