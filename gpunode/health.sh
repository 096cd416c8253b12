# Prints what nvidia-smi says of the GPUs' memory, of what gpunode/smi.sh asked; and of the kernel log xid=LINE, one
# line for each GPU and number, 256 at most, and log=read where it could be read.
#
# The ring buffer forgets, the journal may not be kept: both are read.

printf '%s\n' "$SMI"
{
  dmesg && echo log=read
  timeout -k 1 5 journalctl -q -k -b -o cat --no-pager -g 'NVRM: Xid' && echo log=read
} | awk '
  $0 == "log=read" { if (!read++) print; next }
  place = index($0, "NVRM: Xid ") {
    line = substr($0, place, 236); kind = line; sub(/,.*/, "", kind)
    if (count < 256 && !seen[kind]++) { count++; print "xid=" line }
  }'
