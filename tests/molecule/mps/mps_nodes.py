"""Helpers and data for the tests of mps."""

from __future__ import annotations

PROGRAM = "/usr/bin/nvidia-cuda-mps-control"


# Debian's archive beside the node's own sources, for one download: the package needs nothing but libc.
UNPACK = """
cd /root && . /etc/os-release
uri=$(cat /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null |
  sed -n 's/^URIs: *//p; s/^deb \\(\\[[^]]*\\] \\)\\{0,1\\}\\(http[^ ]*\\) .*/\\2/p' |
  grep debian | grep -v security | head -n 1)
mkdir -p lists/partial
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
printf 'Types: deb\\nURIs: %s\\nSuites: %s\\nComponents: non-free\\nSigned-By: %s\\n' \
  "$uri" "$VERSION_CODENAME" "$keyring" > mps.sources
only="-o Dir::Etc::sourcelist=/root/mps.sources -o Dir::Etc::sourceparts=- -o Dir::State::lists=/root/lists"
apt-get -q -q $only update && apt-get -q -q $only download nvidia-cuda-mps && dpkg-deb -x nvidia-cuda-mps_*.deb /
"""
