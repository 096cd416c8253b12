# Functions of the driver's transaction about a driver by NVIDIA's .run file, on top of runfile_installer.sh.
# They take $runfiles, the folder, $kernel, $rollback, $before_version, and options: $uninstall, $before_install.

# shellcheck disable=SC2154  # set by whoever sends it

runfile_there() { [ -f /usr/bin/nvidia-uninstall ] || [ -f /usr/bin/nvidia-installer ]; }
# Neither now nor before.
no_runfile() { [ ! -s "$checkpoint/runfile" ] && ! runfile_there; }
library_version() {
  for library in /usr/lib/*-linux-gnu/libnvidia-ml.so.1 /usr/lib64/libnvidia-ml.so.1 /usr/lib/libnvidia-ml.so.1; do
    if [ -e "$library" ]; then readlink -f "$library" | sed 's/.*\.so\.//'; return 0; fi
  done
}
# nvidia-installer FILE, for the kernel that boots next where that is not the running one.
install_runfile() {
  installer=$1; shift
  if [ -n "$kernel" ] && [ "$kernel" != "$(uname -r)" ]; then set -- "$@" --kernel-name="$kernel"; fi
  # /tmp may be small, or let nothing be run. The archive goes by the variable, the installer by the option.
  temporary=$checkpoint/tmp; mkdir -p "$temporary"
  came=0; TMPDIR=$temporary run_installer "$installer_log" "$installer" "$@" --tmpdir="$temporary" || came=$?
  rm -rf "$temporary"
  return "$came"
}
uninstall_runfile() {
  if [ -f /usr/bin/nvidia-uninstall ]; then set -- /usr/bin/nvidia-uninstall "$@"
  else set -- /usr/bin/nvidia-installer --uninstall "$@"; fi
  code=0; "$@" > "$checkpoint/said" 2>&1 < /dev/null || code=$?
  if [ "$code" -eq 0 ] && ! runfile_there; then return 0; fi
  echo "gpunode: the driver that a .run file installed could not be removed" >&2
  echo "gpunode: remedy: see /var/log/nvidia-uninstall.log on the node, correct that, and run again" >&2
  echo "gpunode: nvidia-uninstall exits $code:" >&2
  tail -n 15 "$checkpoint/said" >&2
  return 1
}
save_runfile() {
  # Of a driver without module and library nothing is left that could come back.
  if ! runfile_there || [ -z "$before_version" ]; then return 0; fi
  before_file="$runfiles/NVIDIA-Linux-$(uname -m)-$before_version.run"
  echo "runfile $before_version $before_file" > "$checkpoint/runfile"
  ! genuine "$before_file" || return 0
  if [ "$rollback" = required ]; then
    echo "gpunode: rollback would not be possible: ${before_file##*/}, which installed the driver that is there, is" \
      "not in $runfiles with its SHA-256 beside it (${before_file##*/}.sha256)" >&2
    echo "gpunode: remedy: put both there, or set driver.rollback = 'best-effort' to go on without a way back;" \
      "nothing" \
      "was changed" >&2
    exit 1
  fi
  echo "gpunode: caution: there will be no way back to the runfile's driver $before_version" \
    "(driver.rollback is best-effort)" >&2
  : > "$checkpoint/runfile-lacking"
}
# One that was not there before goes; the one of before is put back by its own installer, which removes the other.
# shellcheck disable=SC2086
runfile_away() {
  if [ -s "$checkpoint/runfile" ] || ! runfile_there; then return 0; fi
  uninstall_runfile $uninstall
}
# shellcheck disable=SC2086
runfile_back() {
  [ -s "$checkpoint/runfile" ] || return 0
  before_file=$(cut -d' ' -f3 "$checkpoint/runfile")
  # Before the installer has built its module it touches nothing.
  if runfile_there && [ "$(library_version)" = "$before_version" ] &&
    [ "$(module_there)" = "$(cat "$checkpoint/module")" ]; then return 0; fi
  if [ -e "$checkpoint/runfile-lacking" ]; then
    echo "gpunode: the runfile's driver $before_version could not be saved, and does not come back" >&2; return 0; fi
  genuine "$before_file" || { echo "gpunode: $before_file has not the SHA-256 with which it came: it is not run" >&2
    return 1; }
  install_runfile "$before_file" $before_install
}
