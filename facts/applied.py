"""The record of what was applied, and the files in it as they are now."""

from __future__ import annotations

from facts.base import NodeFact
from gpunode.applied import FOLDERS, PATH, parse_applied
from gpunode.applied import Applied as Reading

_PLACES = "|".join(FOLDERS)


class Applied(NodeFact[Reading]):
    """Read the record, and digest, mode and owners of each regular file in it: one process for all of them."""

    # Paths stand in lines of their own, as json.dumps indents them; to the shell they are arguments and nothing else.
    probe = rf"""
if [ -f {PATH} ]; then (
  echo "record=$(base64 -w0 {PATH})"
  IFS='
'
  set -f; set -- {PATH}
  for path in $(sed -n -E -e '/\/\.{{1,2}}[\/"]/d' -e 's@^    "(({_PLACES})[^"\\]*)": .*@\1@p' {PATH}); do
    if [ -f "$path" ] && [ ! -L "$path" ]; then set -- "$@" "$path"; fi
  done
  stat -c 'file=%a %U:%G %n' -- "$@"
  timeout 20 sha256sum -- "$@" | while IFS=' ' read -r digest path; do echo "sha256=$digest $path"; done
) fi
"""
    parse = staticmethod(parse_applied)
