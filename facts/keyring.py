"""The keyrings of gpunode's package repositories."""

from __future__ import annotations

from facts.base import NodeFact
from gpunode.keyring import Keyrings as Reading
from gpunode.keyring import parse_keyrings


class Keyrings(NodeFact[Reading]):
    """Read the primary keys' fingerprints of each keyring that gpunode wrote."""

    probe = r"""
if command -v gpg >/dev/null; then
  for keyring in /usr/share/keyrings/gpunode-*.gpg; do
    [ -f "$keyring" ] || continue
    name=${keyring##*/gpunode-}; name=${name%.gpg}
    gpg --batch --show-keys --with-colons "$keyring" |
      awk -F: -v name="$name" '$1=="pub"{p=1} $1=="fpr"&&p{print "key=" name " " $10; p=0}'
  done
fi
"""
    parse = staticmethod(parse_keyrings)
