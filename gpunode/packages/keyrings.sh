# Prints of each keyring that gpunode wrote permissions=NAME MODE OWNER:GROUP, and key=NAME FINGERPRINT of its primary
# keys.

if command -v gpg > /dev/null; then
  set --
  for keyring in /usr/share/keyrings/gpunode-*.gpg /etc/pki/rpm-gpg/gpunode-*.asc; do
    [ ! -f "$keyring" ] || set -- "$@" "$keyring"
  done
  named() { name=${1##*/gpunode-}; name=${name%.???}; }
  if [ "$#" -gt 0 ]; then
    stat -c '%a %U:%G %n' "$@" | while read -r mode owner keyring; do
      named "$keyring"; echo "permissions=$name $mode $owner"
    done
  fi
  for keyring in "$@"; do
    named "$keyring"
    for fingerprint in $(primary_keys "$keyring"); do echo "key=$name $fingerprint"; done
  done
fi
