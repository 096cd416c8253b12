"""The keyrings of gpunode's package repositories."""

from __future__ import annotations

from facts.base import NodeFact
from gpunode.keyring import PRIMARY_KEYS, parse_keyrings
from gpunode.keyring import Keyrings as Reading


class Keyrings(NodeFact[Reading]):
    """Read the primary keys' fingerprints of each keyring that gpunode wrote, its mode, owner and group."""

    probe = (
        PRIMARY_KEYS
        + r"""
if command -v gpg >/dev/null; then
  for keyring in /usr/share/keyrings/gpunode-*.gpg /etc/pki/rpm-gpg/gpunode-*.asc; do
    [ -f "$keyring" ] || continue
    name=${keyring##*/gpunode-}; name=${name%.???}
    echo "permissions=$name $(stat -c '%a %U:%G' "$keyring")"
    primary_keys "$keyring" | while read -r fingerprint; do echo "key=$name $fingerprint"; done
  done
fi
"""
    )
    parse = staticmethod(parse_keyrings)
