"""The archives that apt reads, and the files that tell it to."""

from __future__ import annotations

from facts.base import NodeFact
from gpunode.apt_archive import AptArchive as Reading
from gpunode.apt_archive import parse_apt_archive

# gpunode's own entry of the distribution's archive: the components that the node's entries lack.
SOURCE = "/etc/apt/sources.list.d/gpunode-distribution.sources"


class AptArchive(NodeFact[Reading]):
    """Read what apt reads, by apt's own account, and the text of each file that names it."""

    probe = rf"""
targets=$(apt-get indextargets --format '$(ORIGIN)|$(REPO_URI)|$(RELEASE)|$(COMPONENT)|$(SOURCESENTRY)' \
  'Created-By: Packages'); echo "apt=$?"
[ -z "$targets" ] || printf '%s\n' "$targets" | sort -u | sed 's/^/target=/'
printf '%s\n' "$targets" | sed 's/.*|//; s/:[0-9]*$//' | sort -u | while read -r file; do
  [ -f "$file" ] && echo "file=$file $(base64 -w0 "$file")"
done
echo own_path={SOURCE}
[ -f {SOURCE} ] && echo "own=$(base64 -w0 {SOURCE})"
"""
    parse = staticmethod(parse_apt_archive)
