"""Four faults, and how each is cleared. The nodes are containers: what is SIMULATED is said at each fault."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess

FAULTS = ("controller killed", "connection cut", "node rebooted", "disk full")

# As a firewall that resets: every session of the node's sshd ends at once, what ran in it goes on or meets SIGPIPE.
CUT = 'kill -9 $(pgrep -P "$(systemctl show -p MainPID --value ssh.service)")'

# SIMULATED: overlays over the system's folders whose writable half is a full tmpfs, since a container has no disk of
# its own. Reads go on, folders and empty files can be made, every byte written fails with "No space left on device".
# What is mounted below them is kept, and /var/lib/containerd too: containerd's own overlays cannot lie on another.
_FILL = """
set -eu
mkdir -p /run/full /var/lib/containerd; mount -t tmpfs -o size=1m,nr_inodes=100k none /run/full
kept="/etc/gpunode-lab /etc/hosts /etc/resolv.conf /var/log/journal /var/lib/containerd"
number=0
for path in $kept; do
  number=$((number + 1)); hold=/run/kept-$number
  if [ -d $path ]; then mkdir -p $hold; else touch $hold; fi
  mount --bind $path $hold
done
for folder in etc usr var opt root; do
  mkdir -p /run/full/$folder/upper /run/full/$folder/work
  mount -t overlay -o lowerdir=/$folder,upperdir=/run/full/$folder/upper,workdir=/run/full/$folder/work none /$folder
done
number=0
for path in $kept; do number=$((number + 1)); mount --bind /run/kept-$number $path; done
cat /dev/zero > /run/full/filler 2>/dev/null || true
"""
_FREE = "rm -f /run/full/filler; mount -o remount,size=40g /run/full"


class _NodeError(RuntimeError):
    pass


def _node(container: str, script: str) -> None:
    done = subprocess.run(
        ["podman", "exec", container, "sh", "-c", script], capture_output=True, text=True, check=False, timeout=60
    )
    if done.returncode:
        raise _NodeError(f"{container}: {done.stdout}{done.stderr}")


def strike(fault: str, container: str) -> None:
    """Let `fault` happen to this controller or to the node in `container`."""
    if fault == "controller killed":
        os.kill(os.getpid(), signal.SIGKILL)
    elif fault == "connection cut":
        _node(container, CUT)
    elif fault == "node rebooted":
        # podman may lose the command that took its container down; the case itself looks whether the node rebooted.
        with contextlib.suppress(_NodeError):
            _node(container, "systemctl --no-block reboot")
    elif fault == "disk full":
        _node(container, _FILL)
    else:
        raise ValueError(f"no such fault: {fault!r}; there are {', '.join(FAULTS)}")


def free(container: str) -> None:
    """Give the full disk room again; what was written to it stays."""
    _node(container, _FREE)
