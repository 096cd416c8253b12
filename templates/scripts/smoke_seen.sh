# Runs in a test's container, which has sh and sleep alone, and prints what it sees: open=DEVICE, denied=DEVICE;
# cuda=FILE, a libcuda that is mounted; linked=FILE, the name by which programs ask for it; smi=LINE and smi.rc=STATUS,
# what nvidia-smi lists, where there is one.
#
# Opening tells what seeing does not: whether the device cgroup lets it. What else keeps a device shut is no refusal.
# NVIDIA's toolkit mounts each of the driver's files by itself, where the node has it: nvidia-smi may be in a folder
# that is not on the PATH. It has ldconfig make the names with one number.

for device in /dev/nvidia[0-9]* /dev/nvidiactl; do
  [ -c "$device" ] || continue
  case "$( (exec 3<"$device") 2>&1 )" in
    *"not permitted"*|*"ermission denied"*) echo "denied=$device";;
    *) echo "open=$device";;
  esac
done
smi=
while read -r _ place _; do
  case "$place" in
    */libcuda.so.*)
      echo "cuda=$place"
      [ ! -e "${place%/*}/libcuda.so.1" ] || echo "linked=${place%/*}/libcuda.so.1";;
    */nvidia-smi) smi=$place;;
  esac
done < /proc/mounts
smi=$(command -v nvidia-smi || echo "$smi")
if [ -n "$smi" ]; then
  said=$("$smi" -L 2>&1); echo "smi.rc=$?"
  printf '%s\n' "$said" | while read -r line; do printf 'smi=%s\n' "$line"; done
fi
