# Which version of the driver's packages apt would install, by the lists as they are: nothing is refreshed. Takes
# PACKAGES, an expression of names. Prints candidate=PACKAGE VERSION, offer=PACKAGE VERSION, available=PACKAGE VERSION
# of each version of a package of that expression, and fetched=SECONDS, when the lists were read.

command -v apt-cache >/dev/null || exit 0
# Where apt's cache of its lists is outdated, whoever asks writes it anew: here beside the node's own.
folder=$(mktemp -d) || exit 0; trap 'rm -rf "$folder"' EXIT; trap 'exit 1' HUP INT TERM PIPE
asked() { apt-cache -o "Dir::Cache::pkgcache=$folder/pkgcache" -o "Dir::Cache::srcpkgcache=$folder/srcpkgcache" "$@"; }
names=$(asked pkgnames)
# shellcheck disable=SC2046
asked policy $(printf '%s\n' "$names" | grep -xE \
  '(nvidia-open|cuda-drivers)-[0-9]{3}(-[a-z]+)*') |
  awk '/^[^ ]/{name=$1; sub(/:$/, "", name)} $1=="Candidate:" && $2!="(none)"{print "candidate=" name " " $2}'
# A flat repository has no component: NVIDIA's is one, a distribution's archive never.
# shellcheck disable=SC2046
asked madison $(printf '%s\n' "$names" | grep -xE \
  'nvidia-(open-)?kernel-dkms|nvidia-(headless-no-dkms|utils)-[0-9]{3}-server(-open)?') |
  awk -F '|' 'NF>2 && $3 ~ / [^ ]+\/[^ ]+ .*Packages/{gsub(/ /, "", $1); gsub(/ /, "", $2); print "offer=" $1 " " $2}'
# shellcheck disable=SC2046
asked madison $(printf '%s\n' "$names" | grep -xE "$PACKAGES") |
  awk -F '|' 'NF>2{gsub(/ /, ""); print "available=" $1 " " $2}'
[ -z "$names" ] || stat -c 'fetched=%Y' /var/lib/apt/lists/partial
