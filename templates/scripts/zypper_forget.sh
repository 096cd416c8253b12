# Takes back what zypper_trust.sh left of the repository $name: its metadata and its key. A key that was in rpm's
# database before gpunode stays there, and one that another repository of ours needs. It needs primary_keys of
# keyring.sh.

# shellcheck disable=SC2154  # set by whoever sends it

for kept in raw solv packages; do rm -rf "/var/cache/zypp/$kept/gpunode-$name"; done
imported=/var/lib/gpunode/zypper/$name.imported
if [ -f "$imported" ]; then
  id=$(cat "$imported"); rm -f "$imported"; heir=''
  for other in /etc/pki/rpm-gpg/gpunode-*.asc; do
    label=${other##*/gpunode-}; label=${label%.asc}
    [ "$label" != "$name" ] && [ -f "/etc/zypp/repos.d/gpunode-$label.repo" ] &&
      primary_keys "$other" | tr A-F a-f | grep -q "$id\$" && heir=$label
  done
  if [ -n "$heir" ]; then echo "$id" > "/var/lib/gpunode/zypper/$heir.imported"
  else
    rpm -q gpg-pubkey --qf '%{NAME}-%{VERSION}-%{RELEASE}\n' | grep -E -- "$id-[0-9a-f]+\$" | xargs -r rpm -e
  fi
fi
