# Which of the packages in $NAMES (between blanks) dpkg has, and whether it left something half-done: by $DEBS and
# $INTERRUPTED of the question that all share. Prints package=NAME VERSION, dpkg=installed, interrupted=yes.

set -f; IFS=$NL
for line in $DEBS; do
  case "$line" in 'installed '*) line=${line#installed };; *) continue;; esac
  case "$line" in 'dpkg '*) echo dpkg=installed;; esac
  case $NAMES in *" ${line%% *} "*) echo "package=$line";; esac
done
unset IFS; set +f
[ -z "$INTERRUPTED" ] || echo interrupted=yes
