# Prints sysctl=NAME VALUE of each of NAMES that this kernel has.

set --
for name in $NAMES; do
  path=/proc/sys; rest=$name.
  while [ -n "$rest" ]; do path=$path/${rest%%.*}; rest=${rest#*.}; done
  [ ! -r "$path" ] || set -- "$@" "$path"
done
# Not by `read`: the kernel gives a number to its first reading alone, and sh reads one byte at a time.
[ "$#" -eq 0 ] || grep -H '' "$@" | while IFS=: read -r path value; do
  path=${path#/proc/sys/}; name=
  while [ -n "$path" ]; do
    name=$name${name:+.}${path%%/*}
    case "$path" in */*) path=${path#*/};; *) path=;; esac
  done
  echo "sysctl=$name $value"
done
