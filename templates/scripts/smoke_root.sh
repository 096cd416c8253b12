# Makes $root, a root file system for test containers, in $work, a folder of its own.
# Without an image: the root file system is the node's own shell with its libraries, and the C libraries that nvidia-smi
# ($smi, its path) needs, for the toolkit hands it in without them. In /etc the toolkit's hook update-ldcache writes
# ld.so.conf, ld.so.conf.d and ld.so.cache (from 1.18 on whether or not they are there): it makes files and folders
# below it, but not /etc itself.

# shellcheck disable=SC2154  # set by whoever sends it

work=$(mktemp -d /var/tmp/gpunode-smoke.XXXXXX); root=$work/root
for folder in bin dev etc proc sys tmp run var; do mkdir -p "$root/$folder"; done
for program in sh sleep "$smi"; do
  file=$(readlink -f "$(command -v "$program")")
  [ "$program" = "$smi" ] || cp "$file" "$root/bin/$program"
  # Of a script it prints nothing.
  for library in $(ldd "$file" 2> /dev/null | grep -o '/[^ )]*'); do
    case "$library" in *nvidia*) continue;; esac
    mkdir -p "$root${library%/*}"; cp -L "$library" "$root$library"
  done
done
