"""Shell text about .run files: fetching them, and what transactions ask of NVIDIA's installers."""

from __future__ import annotations

import shlex

from gpunode.base.shell_file import script_file
from gpunode.components.runfile import CAUSES

FETCH = script_file("fetching", "runfile_fetch")
# What the log of an installer means, in the order of gpunode.components.runfile.CAUSES.
_CASES = "".join(f"*{shlex.quote(pattern)}*) advice={shlex.quote(cause)};;\n" for pattern, cause in CAUSES)
INSTALLER = f'advise() {{ case "$1" in\n{_CASES}esac; }}\n{script_file("runfile_installer")}'
RUNFILE = INSTALLER + script_file("runfile")
