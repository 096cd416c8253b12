"""One machine of a continuous-integration job, named by environment variables.

GPUNODE_CI_HOST         address of the machine (required)
GPUNODE_CI_USER         user, root by default; any other one needs passwordless sudo
GPUNODE_CI_KEY          path of the private SSH key (required)
GPUNODE_CI_KNOWN_HOSTS  known hosts file with the machine's key; ~/.ssh/known_hosts by default
"""

import os

_missing = [_name for _name in ("GPUNODE_CI_HOST", "GPUNODE_CI_KEY") if not os.environ.get(_name)]
if _missing:
    raise SystemExit(f"{' and '.join(_missing)} not set: this inventory reads its one machine from them")

_user = os.environ.get("GPUNODE_CI_USER") or "root"
_data = {
    "ssh_user": _user,
    "ssh_key": os.environ["GPUNODE_CI_KEY"],
    "ssh_known_hosts_file": os.environ.get("GPUNODE_CI_KNOWN_HOSTS") or os.path.expanduser("~/.ssh/known_hosts"),  # noqa: PTH111
    "ssh_strict_host_key_checking": "yes",
    "_sudo": _user != "root",
}

machines = [(os.environ["GPUNODE_CI_HOST"], _data)]
