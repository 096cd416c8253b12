# Prints NVIDIA's display controllers (class 0x03) as gpu=ADDRESS VENDOR DEVICE [BOARD MAKER], NVSwitches (0x0680) as
# nvswitch=ADDRESS, devices that manage switches as switch_manager=NAME, and umad=loaded: by sysfs, without a driver.

for device in /sys/bus/pci/devices/*; do
  read -r vendor < "$device/vendor" || continue
  [ "$vendor" = 0x10de ] || continue
  read -r class < "$device/class"
  case "$class" in
    0x03*)
      read -r id < "$device/device"; board=''; maker=''
      [ ! -r "$device/subsystem_device" ] || read -r board < "$device/subsystem_device"
      [ ! -r "$device/subsystem_vendor" ] || read -r maker < "$device/subsystem_vendor"
      echo "gpu=${device##*/} $vendor $id${board:+${maker:+ $board $maker}}";;
    0x0680*) echo "nvswitch=${device##*/}";;
  esac
done
set --
for device in /sys/class/infiniband/*; do
  [ ! -r "$device/device/vpd" ] || set -- "$@" "$device/device/vpd"
done
if [ "$#" -gt 0 ]; then
  # shellcheck disable=SC2013  # These names hold no blank.
  for device in $(grep -las SW_MNG "$@"); do device=${device%/device/vpd}; echo "switch_manager=${device##*/}"; done
fi
[ ! -d /sys/module/ib_umad ] && [ ! -e /dev/infiniband/umad0 ] || echo umad=loaded
