"""What apt is told beside gpunode's own sources."""

from __future__ import annotations

from facts.base import NodeFact
from gpunode import tables
from gpunode.apt_sources import AptSources as Reading
from gpunode.apt_sources import parse_apt_sources
from gpunode.keyring import PRIMARY_KEYS


class AptSources(NodeFact[Reading]):
    """Read lists that name NVIDIA or CUDA, retired keys among the world-trusted ones, and whose archives apt reads."""

    # The ids of retired keys are hex digits of our own table. One gpg for all files: most nodes trust no such key.
    probe = (
        PRIMARY_KEYS
        + rf"""
if command -v apt-get >/dev/null; then
  echo "architecture=$(dpkg --print-architecture)"
  apt-get indextargets --format 'archive=$(ORIGIN)|$(COMPONENT)' 'Created-By: Packages' | sort -u
  set --
  for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources; do
    [ -f "$file" ] || continue
    case "${{file##*/}}" in gpunode-*|*[!A-Za-z0-9_.-]*) continue;; esac
    grep -qiE 'nvidia|cuda|graphics-drivers' "$file" && echo "source=$file $(base64 -w0 "$file")"
  done
  for file in /etc/apt/trusted.gpg /etc/apt/trusted.gpg.d/*.gpg /etc/apt/trusted.gpg.d/*.asc; do
    [ -f "$file" ] || continue
    case "${{file##*/}}" in *[!A-Za-z0-9_.-]*) continue;; esac
    set -- "$@" "$file"
  done
  retired='({"|".join(tables.drivers().retired_key_ids)})$'
  if [ "$#" -gt 0 ] && primary_keys "$@" | grep -qE "$retired"; then
    for file in "$@"; do primary_keys "$file" | sed "s|\$| $file|; s/^/trusted=/"; done
  fi
elif [ -s /var/lib/pacman/local/ALPM_DB_VERSION ]; then
  for repository in $(pacman-conf --repo-list); do
    # It says nothing of one that goes by [options].
    levels=$(pacman-conf -r "$repository" SigLevel); [ -n "$levels" ] || levels=$(pacman-conf SigLevel)
    echo "siglevel=$repository" $levels
  done
fi
"""
    )
    parse = staticmethod(parse_apt_sources)
