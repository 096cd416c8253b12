"""What asks changes nothing: a node's files, services and processes are the same before and after. SIMULATED: GPUs."""

from __future__ import annotations

import re

import pytest

from gpunode.lab import nodes as lab_nodes
from gpunode.lab.nodes import Node
from tests.molecule.conftest import LAB, command, inventory_with
from tests.molecule.deviations.ways import WAYS, asked

STRAYING = (
    "toolkit: config.toml edited", "toolkit: one library upgraded alone", "docker: stopped",
    "containerd: another default runtime, not taken up",
    "cuda: no profile script", "repositories: a key gone", "driver: nvidia_uvm alone not loaded",
)  # fmt: skip
# Every file and folder that outlives a boot, with its size, owner, mode and both its times; what every login writes
# (logs, the lab's own among them) apart, and the lab's mirror, which is this machine's and other labs' as well; apart,
# too, what Debian's timers do at midnight.
FILES = (
    "find / -xdev \\( -path /srv/gpunode-lab/mirror "
    "-o -path /run -o -path /var/log -o -path /tmp -o -path /proc -o -path /sys -o -path /dev "
    "-o -path /var/backups -o -path /var/lib/systemd/timers \\) "
    "-prune -o -printf '%p %y %s %U:%G %m %T@ %C@ %l\\n' | LC_ALL=C sort"
)
# The MPS control daemon notes in its log's pipe what it was asked.
RUN = (
    "find /run -mindepth 1 -path /run/systemd -prune -o -path /run/user -prune -o -name 'utmp*' -o -name motd.dynamic "
    "-o -path /run/nvidia-mps/log "
    "-o -printf '%p %y %s %m %T@\\n' | LC_ALL=C sort"
)
# What is enabled, and what runs since when. systemd forgets idle units that nothing refers to whenever it likes, and
# units have unlike numbers of properties: so only what is not inactive, a unit a line. A login brings units and
# processes of its own, and takes them away.
SERVICES = (
    "systemctl list-unit-files --no-legend --no-pager --full; "
    "systemctl show -p Id,MainPID,ActiveState,ExecMainStartTimestampMonotonic,NRestarts --all "
    "'*.service' '*.socket' '*.timer' | awk -v RS= '{ gsub(/\\n/, \" \"); print }' "
    "| grep -v 'ActiveState=inactive' | grep -vE 'user(-runtime-dir)?@|ssh@' | sort"
)
# Not piped: a program of the question's own would be among the answers, now and then without its command line.
PROCESSES = "ps -e -o pid,lstart,args --no-headers"
# A login's own; and what has just begun or ended, which has no command line ("[grep]"; a node has no kernel threads).
PASSING = re.compile(r"sshd|ps -e|sd-pam|systemd --user|sh -c|bash -c| \[[^]]*\]( <defunct>)?$")
MODULES = "cat /proc/modules 2>/dev/null; sysctl -a 2>/dev/null | grep -E '^net[.](ipv4.ip_forward|bridge)'"
STATE = {"files": FILES, "run": RUN, "services": SERVICES, "processes": PROCESSES, "kernel": MODULES}
# How each asks, and the exit code that says that it read every node: of these, one strays.
ASKED = {
    "drift": (("gpunode", "drift", "--json"), 2),
    "dry": (("pyinfra", "--dry"), 0),
    "plan": (("gpunode", "plan"), 0),
    "facts": (("gpunode", "facts"), 0),
}


def state(node: Node) -> dict[str, set[str]]:
    found = {}
    for name, question in STATE.items():
        done = lab_nodes.run(node, question)
        found[name] = {line for line in done.stdout.splitlines() if name != "processes" or not PASSING.search(line)}
    assert all(found[name] for name in ("files", "run", "services", "processes")), found
    return found


@pytest.fixture(scope="module")
def inventory(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return an inventory of the nodes, of which the first strays in many ways."""
    for way in STRAYING:
        done = lab_nodes.run(lab_nodes.nodes(LAB)[0], f"set -e\n{WAYS[way].harm}")
        assert done.returncode == 0, (way, done.stdout + done.stderr)
    folder = tmp_path_factory.mktemp("read-only")
    return inventory_with(folder, asked(folder))


@pytest.mark.parametrize("question", ASKED)
def test_whoever_asks_leaves_files_services_and_processes_as_they_are(
    question: str, inventory: str, nodes: tuple[Node, ...]
) -> None:
    # Whoever asks apt writes this cache, where it is outdated.
    assert all(lab_nodes.run(node, "rm -f /var/cache/apt/*.bin").returncode == 0 for node in nodes)
    before = [state(node) for node in nodes]
    deploy = ("deploys/gpu_node.py",) if question == "dry" else ()
    words, code = ASKED[question]
    run = command(*words, inventory, *deploy)
    assert run.code == code and all(node.name in run.printed for node in nodes), run.printed
    after = [state(node) for node in nodes]
    changed = {
        f"{node.name}: {name}": sorted(earlier[name] ^ later[name])
        for node, earlier, later in zip(nodes, before, after, strict=True)
        for name in STATE
        if earlier[name] != later[name]
    }
    assert changed == {}
