# A function, on top of zypper_read.sh.
# refresh [LABEL] reads the repositories: old metadata do for any but the one of ours that the packages come from.

refresh() {
  code=0; said=$(zypper -n refresh 2>&1) || code=$?
  if [ "$code" -eq 7 ]; then
    printf '%s\n' "$said" >&2; echo "gpunode: zypper exits 7" >&2; exit 1
  fi
  if [ -z "$1" ]; then
    [ "$code" -eq 0 ] || { printf '%s\n' "$said" | tail -n 20 >&2
      echo "gpunode: caution: not every repository could be read; what was read of it before counts" >&2; }
  elif [ "$code" -eq 0 ]; then signed_by_ours "$1" || exit 1
  else read_repository "$1"; fi
}
