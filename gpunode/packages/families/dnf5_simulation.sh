# What dnf 5 would do; it is told to answer no. On top of dnf5.sh, dnf5_versions.sh and other_versions.sh.
# Takes COMING and GOING, what is to come (NAME-EPOCH:VERSION-RELEASE) and to go, a line each: one transaction, with the
# options of the change, for what is to go may be what others still need; WANTED, lines NAME VERSION; UPSTREAM, the one
# version of the driver's packages that dnf is to see (empty: all); EVR, rpm's format of one.
# Prints status=STATUS, line=WORDS, asked=NAME VERSION, installed=NAME VERSION.

set -f; set --
# shellcheck disable=SC2086
[ -z "$COMING" ] || set -- --action=install $COMING
# shellcheck disable=SC2086
[ -z "$GOING" ] || set -- "$@" --action=remove $GOING
set +f
# shellcheck disable=SC2034  # other_versions goes by it.
upstream=$UPSTREAM; others=
[ -z "$UPSTREAM" ] || others=$(other_versions)
said=$(without_locks dnf5 -C '--setopt=*.skip_if_unavailable=1' --assumeno --setopt=install_weak_deps=False \
  ${others:+"--setopt=*.excludepkgs=$others"} --setopt=clean_requirements_on_remove=False "do" --allowerasing "$@" 2>&1)
echo "status=$?"
printf '%s\n' "$said" | sed 's/^/line=/'
[ -z "$WANTED" ] || printf '%s\n' "$WANTED" | sed 's/^/asked=/'
rpm -qa --qf "installed=%{NAME} $EVR\\n" | grep -v '^installed=gpg-pubkey '
