# Prints the node's RDMA devices by sysfs, without a program; nothing where there are none. Takes SYS and DEV, the
# folders /sys and /dev.
#
# device=NAME TAB PCI address TAB vendor TAB device TAB class TAB driver TAB umad TAB uverbs (the last two: yes or not)
# port=NAME TAB number TAB state TAB link layer
# netdev=NAME TAB interface TAB type, as ARPHRD of linux/if_arp.h
# connection_manager=yes where /dev/infiniband/rdma_cm is there; shared=Y or N: the network namespace mode

first() { REPLY=; [ ! -r "$1" ] || IFS= read -r REPLY < "$1" || :; }

[ -d "$SYS/class/infiniband" ] || exit 0
umads=' '; verbs=' '
for each in "$SYS"/class/infiniband_mad/umad*; do first "$each/ibdev"; umads="$umads$REPLY "; done
for each in "$SYS"/class/infiniband_verbs/uverbs*; do first "$each/ibdev"; verbs="$verbs$REPLY "; done
for device in "$SYS"/class/infiniband/*; do
  [ -d "$device" ] || continue
  name=${device##*/}; address=; driver=; umad=; uverbs=
  if [ -r "$device/device/uevent" ]; then
    while IFS= read -r line; do
      case "$line" in
        DRIVER=*) driver=${line#*=};;
        PCI_SLOT_NAME=*) address=${line#*=};;
      esac
    done < "$device/device/uevent"
  fi
  first "$device/device/vendor"; vendor=$REPLY
  first "$device/device/device"; id=$REPLY
  first "$device/device/class"; class=$REPLY
  case "$umads" in *" $name "*) umad=yes;; esac
  case "$verbs" in *" $name "*) uverbs=yes;; esac
  printf 'device=%s\t%s\t%s\t%s\t' "$name" "$address" "$vendor" "$id"
  printf '%s\t%s\t%s\t%s\n' "$class" "$driver" "$umad" "$uverbs"
  for port in "$device"/ports/*; do
    [ -d "$port" ] || continue
    first "$port/state"; state=$REPLY
    first "$port/link_layer"
    printf 'port=%s\t%s\t%s\t%s\n' "$name" "${port##*/}" "$state" "$REPLY"
  done
  for netdev in "$device"/device/net/*; do
    [ -d "$netdev" ] || continue
    first "$netdev/type"
    printf 'netdev=%s\t%s\t%s\n' "$name" "${netdev##*/}" "$REPLY"
  done
done
[ ! -e "$DEV/infiniband/rdma_cm" ] || echo connection_manager=yes
first "$SYS/module/ib_core/parameters/netns_mode"
[ -z "$REPLY" ] || echo "shared=$REPLY"
