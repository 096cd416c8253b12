# The change of the driver's transaction where a .run file is what comes; what is there in packages goes first.
# It takes $runfile, $sha256, $install (options; none: nothing is to be installed but what DKMS builds), $upstream.

# shellcheck disable=SC2154  # set by whoever sends it

# Before anything is saved or changed.
check() { check_runfile; }

# shellcheck disable=SC2086
change() {
  held=$(awk '$3 == "hold" {print $1}' "$checkpoint/packages")
  packages=$(cut -d' ' -f1 "$checkpoint/packages")
  if [ -n "$packages" ]; then
    if [ -n "$held" ]; then release $held; fi
    remove_driver $packages || {
      echo "gpunode: the driver's packages could not be removed" >&2; exit 1; }
  fi
  # Without arguments there is nothing to install but what DKMS builds as it is proven.
  [ -z "$install" ] || install_runfile "$runfile" $install || {
    echo "gpunode: the driver $upstream was not installed; what was there before is put back" >&2
    blameless || reject "the installer of $upstream exits $code: \
${advice:-see its log}; another kernel, its headers, gcc, make or dkms make it another try"
    exit 1; }
  [ "$(library_version)" = "$upstream" ] || reject "$upstream was installed, and the library is $(library_version)"
  prove
  for package in $packages; do
    forget "$package"
  done
  before_file=$(cut -d' ' -f3 "$checkpoint/runfile" 2>/dev/null || true)
  for file in "$runfiles"/NVIDIA-Linux-*.run; do
    case "$file" in "$runfile"|"$before_file") ;; *) rm -f "$file" "$file.sha256";; esac
  done
}
