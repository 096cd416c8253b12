# The change of the driver's transaction by packages: $arguments are what the package manager is told, $expected what is
# there afterwards (NAME=VERSION).

# shellcheck disable=SC2154  # set by whoever sends it

# shellcheck disable=SC2086
change() {
  if runfile_there; then uninstall_runfile $before_uninstall || exit 1; fi
  held=$(awk '$3 == "hold" {print $1}' "$checkpoint/packages")
  if [ -n "$held" ]; then release $held; fi
  install_driver || {
    failed_build
    echo "gpunode: the driver's packages could not be installed" >&2; exit 1; }
  # What was held stays held, whoever did it, until the holds are brought to what the settings say.
  for package in $held; do
    if driver_packages | grep -qx "$package .* installed"; then
      keep "$package" || echo "gpunode: caution: $package could not be held again" >&2
    fi
  done
  for item in $expected; do
    is_installed "$item" || reject "$item should be installed, but is \
$(stated "${item%%=*}")"
  done
  prove
}
