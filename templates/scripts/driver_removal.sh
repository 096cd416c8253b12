# The change of the driver's transaction where there is to be no driver, and what has time afterwards.

# shellcheck disable=SC2154  # set by whoever sends it

# shellcheck disable=SC2086
change() {
  # What needs the module lets it go; what was enabled would be looked for at each boot.
  while read -r unit; do systemctl disable --quiet "$unit" || true; done < "$checkpoint/units"
  systemctl stop nvidia-imex nvidia-persistenced nvidia-fabricmanager > /dev/null 2>&1 || true
  # As long as modprobe still finds them on the disk. What is in use stays until the node boots.
  for module in nvidia_drm nvidia_modeset nvidia_peermem nvidia_uvm nvidia; do
    [ ! -d "/sys/module/$module" ] || modprobe -r "$module" 2> "$checkpoint/said" || rmmod "$module" ||
      { cat "$checkpoint/said" >&2
        echo "gpunode: caution: $module is in use, and stays in memory until the boot" >&2; }
  done
  if runfile_there; then uninstall_runfile $before_uninstall || exit 1; fi
  packages=$(cut -d' ' -f1 "$checkpoint/packages")
  if [ -n "$packages" ]; then
    held=$(awk '$3 == "hold" {print $1}' "$checkpoint/packages")
    if [ -n "$held" ]; then release $held; fi
    unneeded | sort > "$checkpoint/unneeded"
    remove_driver $packages || {
      echo "gpunode: the driver's packages could not be removed" >&2; exit 1; }
    left=$(driver_packages | cut -d' ' -f1)
    [ -z "$left" ] || { echo "gpunode: the package manager left" $left "installed" >&2
      echo "gpunode: remedy: remove them by hand, which names what needs them, and run again" >&2; exit 1; }
    for package in $packages; do forget "$package"; done
  fi
}

# Neither can be had back: what goes here goes when nothing is undone any more.
# shellcheck disable=SC2086
afterwards() {
  # What came along with the driver, and nobody needs any more: round by round, for one may need the next.
  rounds=0
  while [ -e "$checkpoint/unneeded" ] && [ "$rounds" -lt 8 ]; do
    idle=$(unneeded | sort | grep -vxF -f "$checkpoint/unneeded" || true)
    [ -n "$idle" ] || break
    remove_unneeded $idle || { echo "gpunode: caution: nobody needs" $idle "any more, and they stay" >&2; break; }
    rounds=$((rounds + 1))
  done
  rm -f "$runfiles"/NVIDIA-Linux-*.run "$runfiles"/NVIDIA-Linux-*.run.sha256 "$runfiles"/NVIDIA-Linux-*.part
}
