# Loads nvidia and nvidia_uvm and makes its device, on top of nouveau.sh: $wanted is the version on disk. Secure boot
# refuses with "Key was rejected by service"; a missing GPU or the wrong flavour with "No such device".
# The driver that was there before the last change comes back where nothing has proven that change yet but its
# installation: it was a reboot that brought the new module to its first load. A driver that has worked stays, whatever
# keeps it from loading today. $folder is the transactions', $transaction the driver's name.

# shellcheck disable=SC2154  # set by whoever sends it

code=0; said=$(modprobe nvidia 2>&1) || code=$?
[ "$code" -eq 0 ] && [ -r /sys/module/nvidia/version ] || {
  [ -z "$said" ] || printf '%s\n' "$said" >&2
  printed=$(dmesg 2>/dev/null | grep -iE 'nvrm|nvidia|rejected' | tail -n 5 | tr '\n' ';') || :
  echo "gpunode: the nvidia module on disk ($wanted) cannot be loaded${printed:+; the kernel printed: $printed}" >&2
  # No version would load: the driver stays, whether it was proven or not.
  ! name_load_blocker "$said" || exit 1
  echo "gpunode: remedy: look for secure boot (\`mokutil --sb-state\`), for a driver.flavour or version that does" \
    "not support this GPU, and at \`dmesg\` on the node; correct that, and run again" >&2
  reason=$(printf '%s' "$said" | tr '\n' ' ' | tr -cd 'A-Za-z0-9 .,:;_/()-')
  before=$(cat "$folder/$transaction/packages" "$folder/$transaction/runfile" 2>/dev/null | cut -d' ' -f2)
  if grep -qF '"state": "done"' "$folder/$transaction.json" 2>/dev/null && [ -n "$before" ] &&
    [ -e "$folder/$transaction/unproven" ] && ! nouveau_bound &&
    ! printf '%s\n' "$before" | grep -qE "^([0-9]+:)?$wanted([-~+]|\$)"; then
    echo "gpunode: it came with the last change of the driver, which is undone" >&2
    reason="the module $wanted does not load: $reason"
    # A unit of systemd's, so that a cut connection does not end it.
    systemd-run --quiet --wait --collect --unit="gpunode-$transaction" \
      --property=TimeoutStopSec=900 --property=RuntimeMaxSec=10800 /bin/sh -c \
      "exec /bin/sh $folder/$transaction.sh undo '$reason' > $folder/$transaction.log 2>&1" &&
      { echo "gpunode: the driver of before is back; loaded is $(cat /sys/module/nvidia/version || echo NONE)" >&2
        ! grep -qF '"state": "failed"' "$folder/$transaction.json" ||
          echo "gpunode: remedy: set another driver: $wanted is not tried again until the settings change, or with" \
            "\`gpunode apply --retry\` (pyinfra: --data gpunode_retry=1)" >&2; } ||
      echo "gpunode: that did not succeed; see $folder/$transaction.log" >&2
  fi
  exit 1; }
modprobe nvidia_uvm || { echo "gpunode: nvidia is loaded, but nvidia_uvm, without which CUDA does not start, is not" >&2
  echo "gpunode: remedy: see \`dmesg | tail -n 30\` and \`dkms status\` on the node; install the driver again where" \
    "the" \
    "module is missing, and run again" >&2
  exit 1; }
# The module does not make its device: nvidia-modprobe does, or who has none reads the major number, as its sources do.
if [ ! -c /dev/nvidia-uvm ]; then
  rm -f /dev/nvidia-uvm
  # `|| :`, for the script would end here without a word.
  nvidia-modprobe -u -c=0 2>/dev/null || :
  major=$(sed -n 's/^ *\([0-9][0-9]*\) nvidia-uvm$/\1/p' /proc/devices)
  if [ ! -c /dev/nvidia-uvm ] && [ -n "$major" ]; then
    # udev may be at the same by gpunode's rule: what counts is that it is there.
    mknod -m 666 /dev/nvidia-uvm c "$major" 0 || :
    [ -c /dev/nvidia-uvm-tools ] || mknod -m 666 /dev/nvidia-uvm-tools c "$major" 1 || :
  fi
  [ -c /dev/nvidia-uvm ] || { echo "gpunode: nvidia_uvm is loaded, but /dev/nvidia-uvm, without which CUDA does not" \
    "start, cannot be made: nvidia-modprobe is not there or fails, and /proc/devices has no nvidia-uvm" >&2
    echo "gpunode: remedy: install nvidia-modprobe, see what \`nvidia-modprobe -u -c=0\` prints on the node; run" \
      "again" >&2
    exit 1; }
fi
loaded=$(cat /sys/module/nvidia/version)
[ "$loaded" = "$wanted" ] || { echo "gpunode: loaded is $loaded, on disk is $wanted" >&2
  echo "gpunode: remedy: boot the node, which loads the module on disk (disruption.allow = 'reboot' lets a run do" \
    "so)" >&2
  exit 1; }
rm -f "$folder/$transaction/unproven"
