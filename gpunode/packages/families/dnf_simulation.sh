# What dnf would do; it is told to answer no. On top of dnf_stream.sh, dnf_versions.sh and other_versions.sh.
# Takes ASKED, lines of dnf's shell: one transaction for what comes and what goes, with the options of the change, for
# what is to go may be what others still need; WANTED, lines NAME VERSION; UPSTREAM, the one version of the driver's
# packages that dnf is to see (empty: all); EVR, rpm's format of one.
# Prints status=STATUS, line=WORDS, asked=NAME VERSION, installed=NAME VERSION.

# shellcheck disable=SC2154  # $folder is dnf_stream.sh's.
printf '%s\n' "$ASKED" > "$folder/asked"
# shellcheck disable=SC2153
upstream=$UPSTREAM; others=
[ -z "$upstream" ] || others=$(other_versions in_stream)
said=$(in_stream dnf -C '--setopt=*.skip_if_unavailable=1' --assumeno --disableplugin=versionlock --allowerasing \
  ${others:+"--setopt=*.excludepkgs=$others"} --setopt=clean_requirements_on_remove=False shell "$folder/asked" 2>&1)
echo "status=$?"
printf '%s\n' "$said" | sed 's/^/line=/'
[ -z "$WANTED" ] || printf '%s\n' "$WANTED" | sed 's/^/asked=/'
rpm -qa --qf "installed=%{NAME} $EVR\\n" | grep -v '^installed=gpg-pubkey '
