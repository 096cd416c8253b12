# Prints what nvidia-smi says of the GPUs' memory, of what gpunode/system/smi.sh asked; and of the kernel log xid=LINE,
# one line for each GPU and number, 256 at most, and log=read where it could be read.
#
# The ring buffer forgets, the journal may not be kept: both are read. Xid 154 tells what the driver wants done now, so
# that its last line counts: the ring buffer's, which has the newest, else the journal's.

printf '%s\n' "$SMI"
{
  dmesg && echo log=read
  timeout -k 1 5 journalctl -q -k -b -o cat --no-pager -g 'NVRM: Xid' && echo log=read
} | awk '
  $0 == "log=read" { if (!read++) print; next }
  place = index($0, "NVRM: Xid ") {
    line = substr($0, place, 236); kind = line; sub(/,.*/, "", kind)
    if (count >= 256 && !(kind in seen)) next
    if (!seen[kind]++) count++; else if (kind !~ /: 154$/) next
    if (kind !~ /: 154$/) print "xid=" line; else if (read) kept[kind] = line; else ring[kind] = line
  }
  END {
    for (kind in kept) if (!(kind in ring)) print "xid=" kept[kind]
    for (kind in ring) print "xid=" ring[kind]
  }'
