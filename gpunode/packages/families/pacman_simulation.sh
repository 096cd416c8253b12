# What pacman would do, and what of the system is behind what would come; nothing is changed. On top of pacman_needs.sh.
# Takes COMING, lines NAME VERSION, and GOING, lines NAME.
# Prints asked=NAME VERSION, status=STATUS, line=WORDS, comes=NAME VERSION, going=NAME, needed=STATUS, differs=NAME
# INSTALLED OFFERED ORDER, why=WORDS, installed=NAME VERSION, conflict=NAME OTHER.

folder=$(mktemp -d) || exit 0; trap 'rm -rf "$folder"' EXIT; trap 'exit 1' HUP INT TERM PIPE
# What is there already stays, also where the repositories have moved on from it.
set --
set -f; IFS=$NL
for each in $COMING; do
  echo "asked=$each"; [ "$(pacman -Q "${each%% *}")" = "$each" ] || set -- "$@" "${each%% *}"
done
unset IFS; set +f
if [ "$#" -gt 0 ]; then
  asked -Sp --dbpath "$(database)" --print-format "%n %v" "$@" > "$folder/comes" 2> "$folder/said"
else : > "$folder/comes"; : > "$folder/said"; fi; echo "status=$?"
# What cannot be satisfied it tells on standard output, what is wrong else on the other.
sed -n 's/^:: /line=/p' "$folder/comes"; sed '/^warning: /d; s/^/line=/' "$folder/said"
sed '/^:: /d; s/^/comes=/' "$folder/comes"
for each in $GOING; do echo "going=$each"; done
differing "$@" > "$folder/differing" 2> "$folder/why"; echo "needed=$?"
sed 's/^/differs=/' "$folder/differing"
sed -n 's/^:: /why=/p' "$folder/needed"; sed '/^warning: /d; s/^/why=/' "$folder/why"
sed 's/^/installed=/' "$folder/installed"
[ "$#" -eq 0 ] || pacman -Si --dbpath "$(database)" "$@" |
  awk -F ' *: ' '/^Name /{name=$2} /^Conflicts With /&&$2!="None"{
    count = split($2, list, " +")
    for (i = 1; i <= count; i++) if (list[i] !~ /[<>=]/) print name, list[i]}' |
  while read -r name other; do
    # Also one that only provides what is named.
    pacman -Qq "$other" | sed "s/^/conflict=$name /"
  done
