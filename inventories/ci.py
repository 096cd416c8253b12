"""The machines of a continuous-integration job, from one of three sources (docs/how-to/ci.md of gpunode's checkout).

GPUNODE_CI_HOST         address of the machine, or several with commas between
GPUNODE_CI_MACHINES     a JSON file of them, as `terraform output -json` writes it;
                        GPUNODE_CI_OUTPUT names the output, gpu_nodes by default
GPUNODE_CI_SSH_CONFIG   a file that `vagrant ssh-config` wrote

GPUNODE_CI_USER         user, root by default; any other one needs passwordless sudo
GPUNODE_CI_KEY          path of the private SSH key, where the source names none
GPUNODE_CI_KNOWN_HOSTS  known hosts file with the machines' keys; ~/.ssh/known_hosts by default
GPUNODE_CI_HOST_KEYS    yes by default; accept-new notes the key of a machine that nobody has seen before
"""

import os as _os

from gpunode.fleet.ci import machines as _machines

try:
    machines = _machines.machines_from(_os.environ)
except _machines.MachinesError as _error:
    raise SystemExit(str(_error)) from None
