"""Shell text about .run files: fetching them, and what the driver's transaction asks of NVIDIA's installer."""

from __future__ import annotations

import shlex

from gpunode.runfile import CAUSES

# A download that was cut goes on where it ended, in the same run or the next one. Nothing takes the file's name before
# it has the SHA-256 that was asked for, and nothing that has another one is kept.
FETCH = r"""
umask 077
folder=${path%/*}; mkdir -p "$folder"
part=$path.$sha256.part
has() { [ -f "$1" ] && [ "$(sha256sum < "$1" | cut -d' ' -f1)" = "$sha256" ]; }
size() { stat -c %s "$part" 2>/dev/null || echo 0; }
give_up() {
  echo "gpunode: $url could not be fetched: $1; nothing was installed" >&2
  [ "$(size)" = 0 ] || echo "gpunode: the $(size) bytes that came are kept: the next run goes on from there" >&2
  exit 1
}
attempts=0
download() {
  tries=0; restarted=''
  while :; do
    attempts=$((attempts + 1))
    before=$(size); code=0
    status=$(curl --fail --silent --show-error --location --continue-at - --connect-timeout 15 --speed-limit 1024 \
      --speed-time 60 --output "$part" --write-out '%{http_code}' "$url" 2>"$folder/.said") || code=$?
    said=$(tail -n 1 "$folder/.said"); rm -f "$folder/.said"
    case "$code:$status" in
      0:*) return 0;;
      # There is no more than what came already, or the server cannot go on in the middle: from the start, once.
      22:416|33:*|36:*) [ "$before" -gt 0 ] || give_up "$said"
        if has "$part"; then return 0; fi
        rm -f "$part"; before=0
        [ -z "$restarted" ] || give_up "the server does not go on in the middle of a file, and cut it twice"
        restarted=yes;;
      22:408|22:429|22:5*) ;;
      22:*) give_up "the server answers $status; look at the address in the settings";;
      23:*) give_up "it could not be written to $folder: $said";;
    esac
    # A connection that brought something is worth another try.
    if [ "$(size)" -gt "$before" ]; then tries=0; else tries=$((tries + 1)); fi
    if [ "$tries" -ge 4 ] || [ "$attempts" -ge 100 ]; then give_up "$said"; fi
    sleep 2
  done
}
if ! has "$path"; then
  rm -f "$path" "$path.sha256"
  for other in "$path".*.part; do [ "$other" = "$part" ] || rm -f "$other"; done
  begun=$(size)
  download
  if ! has "$part" && [ "$begun" -gt 0 ]; then
    # The part of an earlier run was of another file.
    rm -f "$part"; download
  fi
  if ! has "$part"; then
    got=$(sha256sum < "$part" | cut -d' ' -f1); rm -f "$part"
    echo "gpunode: $url has the SHA-256 $got, and $sha256 is asked for: it was removed, and nothing was run" >&2
    echo "gpunode: compare with what NVIDIA says of this file, and set ${setting} if that is the right one" >&2
    exit 1
  fi
  sync "$part"; mv -f "$part" "$path"
fi
printf '%s\n' "$sha256" > "$path.sha256.new"; mv -f "$path.sha256.new" "$path.sha256"
"""

# What the log of an installer means, in the order of gpunode.runfile.CAUSES.
_ADVICE = "".join(f"    *{shlex.quote(pattern)}*) advice={shlex.quote(cause)};;\n" for pattern, cause in CAUSES)

# An installer's own words go into our error: it says on the terminal little more than where its log is.
INSTALLER = rf"""
# Its SHA-256 is still the one with which it came.
genuine() {{
  [ -f "$1" ] && [ "$(sha256sum < "$1" | cut -d' ' -f1)" = "$(head -n 1 "$1.sha256" 2>/dev/null)" ]
}}
# run_installer LOG FILE [ARGUMENT ...]
run_installer() {{
  log=$1; file=$2; shift 2
  : > "$checkpoint/started"; code=0
  # What it makes is for everybody to read, unlike what the transaction keeps.
  (umask 022; sh "$file" "$@") > "$checkpoint/said" 2>&1 < /dev/null || code=$?
  [ "$code" -ne 0 ] || return 0
  # A log that is older is of another run.
  if [ ! -e "$log" ] || [ "$checkpoint/started" -nt "$log" ]; then log=$checkpoint/said; fi
  echo "gpunode: ${{file##*/}} exits $code; the end of $log:" >&2
  tail -n 15 "$log" | cut -c 1-400 >&2
  advice=
  case "$(grep -iE 'error|fail|fatal|no space' "$log" | tail -n 40)" in
{_ADVICE}  esac
  [ -z "$advice" ] || echo "gpunode: $advice" >&2
  return "$code"
}}
# Says whether the last one cannot be blamed: a disk that is full, or somebody who stopped it (128 and more).
blameless() {{
  case "$code:$(tail -n 40 "$log")" in
    *'No space left on device'*) return 0;;
    [0-9]:*|[0-9][0-9]:*|1[01][0-9]:*|12[0-7]:*) return 1;;
  esac
}}
"""

RUNFILE = (
    INSTALLER
    + r"""
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
  echo "gpunode: the driver that a .run file installed could not be removed (nvidia-uninstall exits $code):" >&2
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
    echo "gpunode: nothing was changed; put both there, or set driver.rollback = 'best-effort' to go on" >&2
    exit 1
  fi
  echo "gpunode: caution: there will be no way back to the runfile's driver $before_version" \
    "(driver.rollback is best-effort)" >&2
  : > "$checkpoint/runfile-lacking"
}
# One that was not there before goes; the one of before is put back by its own installer, which removes the other.
runfile_away() {
  if [ -s "$checkpoint/runfile" ] || ! runfile_there; then return 0; fi
  uninstall_runfile $uninstall
}
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
"""
)

# The change of the driver's transaction where a .run file is what is asked for; what is there in packages goes first.
REPLACE = r"""
held=$(awk '$3 == "hold" {print $1}' "$checkpoint/packages")
packages=$(cut -d' ' -f1 "$checkpoint/packages")
if [ -n "$packages" ]; then
  if [ -n "$held" ]; then release $held; fi
  remove_driver $packages || {
    echo "gpunode: the driver's packages could not be removed; mend what it says above, and run again" >&2; exit 1; }
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
"""

# Before anything is saved or changed.
CHECK = r"""
genuine "$runfile" && [ "$(head -n 1 "$runfile.sha256")" = "$sha256" ] || {
  rm -f "$runfile" "$runfile.sha256"
  echo "gpunode: $runfile had not the SHA-256 $sha256: it was removed, and nothing was run; run again to fetch it" >&2
  exit 1; }
"""
