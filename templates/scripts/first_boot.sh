# The first boot of a machine that was made from an image of gpunode's: makes what only a machine with GPUs can have,
# verifies, and records it in $record (lines KEY=VALUE); what is wrong stands in $record.failed, and the next boot tries
# again. Takes $unproven, the mark of a driver that never was loaded; $cdi: `yes` where a CDI specification is to be
# made, then $target and $mark; $links: `yes` for links of devices; $units: what is to run; $gpunode: the version that
# made the image. On top of it stand cdi.sh and make_cdi.

# shellcheck disable=SC2154,SC2034  # set by whoever sends it; cdi.sh reads $version

wrong=''
note() { wrong="$wrong${wrong:+; }$1"; echo "gpunode: $1" >&2; }
on_bus=0
for device in /sys/bus/pci/devices/*; do
  [ -r "$device/vendor" ] || continue
  read -r vendor < "$device/vendor"; read -r class < "$device/class"
  case "$vendor $class" in '0x10de 0x03'*) on_bus=$((on_bus + 1));; esac
done
if [ "$on_bus" -eq 0 ]; then note 'no NVIDIA GPU is on the PCI bus'; else
  { modprobe nvidia && modprobe nvidia_uvm; } || note "the module nvidia does not load: $(uname -r); see dmesg"
  loaded=none
  [ ! -r /sys/module/nvidia/version ] || read -r loaded < /sys/module/nvidia/version
  tries=0; answering=0
  while [ "$tries" -lt 60 ]; do
    answering=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU ')
    [ "$answering" -lt "$on_bus" ] || break
    tries=$((tries + 1)); sleep 2
  done
  if [ "$answering" -eq "$on_bus" ]; then
    # What the image's driver was still to prove (operations/driver.py).
    rm -f "$unproven"
  else note "nvidia-smi lists $answering of $on_bus GPUs"; fi
  if [ "$cdi" = yes ] && [ "$loaded" != none ]; then
    (set -e; version=$loaded; make_cdi) || note 'no CDI specification could be made'
  fi
  if [ "$links" = yes ]; then
    nvidia-ctk system create-dev-char-symlinks --create-all >&2 || note 'the links of NVIDIA devices could not be made'
  fi
fi
for unit in $units; do
  tries=0
  until systemctl is-active --quiet "$unit" || [ "$tries" -ge 60 ]; do tries=$((tries + 1)); sleep 1; done
  systemctl is-active --quiet "$unit" || note "$unit does not run"
done
mkdir -p "${record%/*}"
to=$record; [ -z "$wrong" ] || to=$record.failed
{
  echo "gpunode=$gpunode"; echo "at=$(date -u +%Y-%m-%dT%H:%M:%SZ)"; echo "gpus=$on_bus"
  echo "verdict=${wrong:-ok}"
} > "$to.new"
mv -f "$to.new" "$to"
[ -n "$wrong" ] || rm -f "$record.failed"
[ -z "$wrong" ]
