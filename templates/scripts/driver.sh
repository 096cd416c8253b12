# Functions of the driver's transaction, however the driver comes: what is saved, how a change is proven, how it is put
# back. On top of nouveau.sh, runfile.sh and the package manager's: operations/families/family.py says what each of
# those does. The change is in driver_packages.sh, driver_runfile.sh or driver_removal.sh.

# shellcheck disable=SC2154,SC2034  # set by whoever sends it; read by what stands beside it

# Debian's own packages rename the module, so that it need not be the one of that name.
modules='nvidia nvidia-current nvidia-current-open'
sources=${sources:-} proof=${proof:-loaded} saved=${saved:-debs}
module_there() {
  for each in $modules; do
    modinfo -k "${kernel:-$(uname -r)}" -F version "$each" 2>/dev/null && return 0
  done
  return 0
}
loaded_version() { cat /sys/module/nvidia/version 2>/dev/null || true; }
# DKMS takes the build's folder away where a build succeeds.
failed_build() {
  for log in /var/lib/dkms/nvidia*/"$upstream"/build/make.log; do
    [ -f "$log" ] || continue
    if grep -qE 'No space left on device|annot allocate memory|Killed' "$log"; then
      echo "gpunode: cause: DKMS ran out of room or memory: $(grep -m 1 -E 'No space|annot allocate|Killed' "$log")" >&2
      echo "gpunode: remedy: see \`df\` and \`free -m\` on the node, make room, and run again" >&2
      exit 1
    fi
    echo "gpunode: DKMS could not build the module; the end of $log:" >&2
    tail -n 15 "$log" | sed 's/^/  /' >&2
    reject "DKMS could not build the module $upstream ($(head -n 1 "$log")): $(grep -m 1 -iE 'error' "$log" || true)" \
      "set a driver.version that supports kernel ${kernel:-$(uname -r)}, or boot a kernel that this driver supports"
  done
}
# $upstream is on the disk for the kernel that boots next, and loads and answers where that can be tried without a boot.
prove() {
  # DKMS builds for the running and for the newest kernel; the one that boots next may be neither.
  if [ -n "$kernel" ] && [ -z "$(module_there)" ] && command -v dkms > /dev/null; then
    dkms autoinstall -k "$kernel" || true
  fi
  on_disk=''
  for module in $modules; do
    on_disk=$(modinfo -k "${kernel:-$(uname -r)}" -F version "$module" 2>/dev/null) && break
  done
  # Without a kernel (an image that is being made) there is nothing that a module could be for.
  if [ "$proof" != packages ] && [ "$on_disk" != "$upstream" ]; then
    failed_build
    reject "$upstream is installed, but for kernel ${kernel:-$(uname -r)} the module on disk is ${on_disk:-none}" \
      "see \`dkms status\` on the node, or where modules come built, for which driver that kernel's is; install the\
 kernel's headers, or boot a kernel that has the module"
  fi
  # nouveau gives the GPU up at a boot alone, and a module that is built for another kernel waits for that kernel.
  if [ "$proof" = loaded ] && [ -z "$(loaded_version)" ] && ! nouveau_bound &&
    [ "$(modinfo -F version "$module" 2>/dev/null)" = "$upstream" ]; then
    code=0; said=$(modprobe nvidia 2>&1) || code=$?
    # No version loads while the node itself prevents it: the driver stays, for operations/driver.py to load.
    if [ "$(loaded_version)" = "$upstream" ] || ! name_load_blocker "$said"; then
      [ "$code" -eq 0 ] || { dmesg 2>/dev/null | grep -iE 'nvrm|nvidia|rejected' | tail -n 5 >&2 || true
        reject "the module $upstream is installed and does not load: $said"; }
      [ "$(loaded_version)" = "$upstream" ] || reject "the module on disk is $upstream and loaded is $(loaded_version)"
      code=0; said=$(timeout -k 5 60 nvidia-smi -L 2>&1) || code=$?
      # Not of the driver's doing: a GPU that is lost (15), or that nvidia-smi itself is none of its packages (127).
      case "$code" in 9|12|18|124|137) name_other_drivers ||
        reject "the module $upstream is loaded, and nvidia-smi exits $code: $said";; esac
    fi
  fi
  # What only a reboot can load is not proven yet: operations/driver.py takes the mark away, or undoes the change.
  if [ "$(loaded_version)" != "$upstream" ]; then : > "$checkpoint/unproven"; fi
}

check() { :; }

# shellcheck disable=SC2086
save() {
  check
  unlocked
  # A file of the package manager's own is changed where a link leads.
  printf '%s\n' "$holding" | while read -r file was; do
    real=$file
    case "$file" in '') continue;; */gpunode*) ;; *) real=$(target_of "$file") || real=$file;; esac
    keep_file "$file" "$was" "$real" || exit 1
  done
  save_runfile
  driver_packages | awk '$4 == "installed"' > "$checkpoint/packages"
  save_choices
  loaded_version > "$checkpoint/loaded"
  # A package that is removed takes its unit's place at the boot with it.
  for unit in nvidia-fabricmanager nvidia-persistenced nvidia-imex; do
    if systemctl is-enabled --quiet "$unit" 2>/dev/null; then echo "$unit"; fi
  done > "$checkpoint/units"
  module_there > "$checkpoint/module"
  mkdir "$checkpoint/$saved"
  fetch=''
  while read -r package version _; do
    if file=$(cached_file "$package" "$version"); then
      ln "$file" "$checkpoint/$saved/" 2>/dev/null || cp "$file" "$checkpoint/$saved/"
    else fetch="$fetch $package=$version"; fi
  done < "$checkpoint/packages"
  if [ -n "$fetch" ]; then
    # One that is not to be had would keep the others from coming.
    (cd "$checkpoint/$saved" && fetch $fetch > "$checkpoint/download" 2>&1) || for item in $fetch; do
      (cd "$checkpoint/$saved" && fetch "$item" > "$checkpoint/download" 2>&1) || true
    done
  fi
  lacking=''; : > "$checkpoint/lacking"
  while read -r package version _; do
    saved_file "$checkpoint/$saved" "$package" "$version" > /dev/null ||
      { lacking="$lacking $package=$version"; echo "$package" >> "$checkpoint/lacking"; }
  done < "$checkpoint/packages"
  if [ -n "$lacking" ]; then
    tail -n 3 "$checkpoint/download" >&2 2>/dev/null || true
    # What is there already, and has only to be proven, needs no way back.
    changes=$([ "$arguments" = "$expected" ] || echo yes)
    for item in $expected; do is_installed "$item" || changes=yes; done
    if [ "$rollback" = required ] && [ -n "$changes" ]; then
      echo "gpunode: rollback would not be possible: of the installed driver's packages these are neither in the" \
        "package manager's cache nor in a repository:$lacking" >&2
      echo "gpunode: remedy: have the repository offer them, or set driver.rollback = 'best-effort' to go on without" \
        "a" \
        "way back; nothing was changed" >&2
      exit 1
    fi
    echo "gpunode: caution: there will be no way back for$lacking (driver.rollback is best-effort)" >&2
  fi
}

restore() {
  finish_half
  driver_packages > "$checkpoint/now"
  cut -d' ' -f1 "$checkpoint/packages" > "$checkpoint/names"
  added=$(cut -d' ' -f1 "$checkpoint/now" | grep -vxF -f "$checkpoint/names")
  if [ ! -s "$checkpoint/packages" ] && [ -z "$rejected" ] && no_runfile; then
    # There was no driver, and nothing is said against this one: what has come stays, if it can be finished.
    ! finish_first || return 0
  fi
  was=$(cat "$checkpoint/loaded")
  if [ -n "$rejected" ] && [ -z "$was" ] && [ -n "$(loaded_version)" ]; then
    systemctl stop nvidia-imex nvidia-persistenced nvidia-fabricmanager > /dev/null 2>&1
    modprobe -r nvidia_uvm nvidia > /dev/null 2>&1
  fi
  runfile_away || return 1
  # What could not be saved (rollback: best-effort) is no part of what has to come back.
  restorable() {
    awk -v lacking="$checkpoint/lacking" \
      'BEGIN {while ((getline line < lacking) > 0) lost[line] = 1} !($1 in lost) {print $1, $2, $4}' "$1"
  }
  back() {
    driver_packages > "$checkpoint/now"
    [ "$(restorable "$checkpoint/now")" = "$(restorable "$checkpoint/packages")" ]
  }
  if ! back; then
    files=''
    while read -r package version _; do
      if file=$(saved_file "$checkpoint/$saved" "$package" "$version"); then files="$files $file"; fi
    done < "$checkpoint/packages"
    put_back
  fi
  back || return 1
  runfile_back || return 1
  # The packages may be back and the module not: DKMS builds none without the kernel's headers, and calls that good.
  if [ -s "$checkpoint/module" ] && [ -z "$(module_there)" ]; then
    ! command -v dkms > /dev/null || dkms autoinstall -k "${kernel:-$(uname -r)}"
    [ -n "$(module_there)" ] || {
      echo "gpunode: the driver of before is back, but kernel ${kernel:-$(uname -r)} has NO nvidia module on disk:" \
        "install its headers and run dkms autoinstall before anybody reboots" >&2; return 1; }
  fi
  restore_choices
  if [ -s "$checkpoint/names" ] || [ -s "$checkpoint/runfile" ]; then
    if [ -z "$(loaded_version)" ] && ! nouveau_bound; then
      if ! { modprobe nvidia && modprobe nvidia_uvm; }; then
        echo "gpunode: the earlier driver is back, and its module does not load now" >&2
        # A module that is built for another kernel says nothing about this one.
        [ -z "$(modinfo -F version nvidia 2>/dev/null)" ] || case "$rejected" in *load*) not_to_blame;; esac
      fi
    fi
    for unit in nvidia-fabricmanager nvidia-persistenced nvidia-imex; do
      ! grep -qx "$unit" "$checkpoint/units" || systemctl enable --quiet "$unit"
      if systemctl is-enabled --quiet "$unit" 2>/dev/null && ! systemctl is-active --quiet "$unit"; then
        systemctl reset-failed "$unit"; systemctl start "$unit"
      fi
    done
  fi
  put_files_back
}
