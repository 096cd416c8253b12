# Prints each file that root runs by and others than root may write, as exposed=MODE UID GID PATH. Takes FILES,
# patterns.
#
# Where a file is a link, its target counts, and the folder that this stands in: whoever may write there puts another
# file in its place.

set --
for file in $FILES; do
  [ -e "$file" ] || continue
  set -- "$@" "$file"
  # Rare: else each costs a program.
  if [ -L "$file" ]; then target=$(readlink -f "$file"); set -- "$@" "${target%/*}"; fi
done
[ "$#" -eq 0 ] || stat -L -c '%u %g %A %a %n' -- "$@" | while read -r user group letters mode file; do
  case "$user $group $letters" in
    '0 '*\ ?????-??-?) ;;
    '0 0 '????????-?) ;;
    *) echo "exposed=$mode $user $group $file";;
  esac
done
