# A function that keeps a package manager from removing what nobody told it to remove.
# refuse_removal MANAGER WANTED GOING REMOVED ends the script where a word of REMOVED is not one of GOING (NAME or
# NAME-).
# A word NAME- of WANTED is what is to go, and no part of the message. $instead is how the settings ask for something
# that removes nothing, where they can.

refuse_removal() {
  lost=''
  for removed in $4; do
    case " $3 " in *" $removed "*|*" $removed- "*) ;; *) lost="$lost $removed";; esac
  done
  [ -n "$lost" ] || return 0
  asking=''
  for wanted in $2; do case "$wanted" in *-) ;; *) asking="$asking${asking:+ }$wanted";; esac; done
  echo "gpunode: $asking would remove$lost, which nobody asked for; no package was changed" >&2
  echo "gpunode: remedy: ${instead:+$instead; or }remove yourself what is to go ($1 remove$lost), and run again" >&2
  exit 1
}
