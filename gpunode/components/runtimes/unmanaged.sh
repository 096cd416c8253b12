# Prints unit=NAME ACTIVE-STATE FILE-STATE of each of the units $OTHER_RUNTIMES that is installed, and file=PATH of each
# of the files and sockets $OTHER_FILES that exists. Asks for these units (gpunode/system/unit.sh).

for name in $OTHER_RUNTIMES; do
  unit "$name" || continue
  says LoadState; [ "$SAID" = loaded ] || continue
  says ActiveState; active=$SAID
  says UnitFileState; echo "unit=$name ${active:-unknown} ${SAID:-unknown}"
done
for path in $OTHER_FILES; do [ ! -e "$path" ] || echo "file=$path"; done
