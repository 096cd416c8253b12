"""What is timed: each contender is a command (or one per node, all at once) that reads converged nodes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from gpunode.facts.node import Node as NodeFact
from gpunode.lab import access, nodes
from gpunode.lab.cache import cache_dir
from gpunode.lab.nodes import Node
from gpunode.lab.state import CHECKOUT, lab_folder, read_json

# Two checkouts on one machine may measure, each under names of its own (not at the same time).
LAB = f"{os.environ.get('GPUNODE_TEST_LABS') or 'test'}-bench"
# Beyond this ansible takes minutes on a small machine, and says nothing new.
ANSIBLE_NODES = 20
_BENCH = Path(__file__).parent
_PROGRAMS = Path(sys.executable).parent
# The lab's state lies in this checkout, whichever one reads it.
_GPU_NODE = (str(CHECKOUT / "inventories" / "lab.py"), "deploys/gpu_node.py")
_STOCK = ("--config", str(_BENCH / "stock.py"))
# What any program that knows a node's state has to ask: packages, GPUs, the runtime's configuration, units, versions. A
# part that fails would make it cheaper, and ends it instead. Thrown away where it is printed: to carry it costs more.
FIXED_WORK = """set -e
exec > /dev/null
dpkg-query -W
nvidia-smi -L
containerd config dump
systemctl show '*' -p Id,ActiveState
cat /etc/os-release /proc/driver/nvidia/version"""


class BenchError(Exception):
    """Say which contender failed, and what it printed: a figure of a run that failed would be no figure."""


@dataclass(frozen=True)
class Contender:
    """Name a way to read all nodes; `run` returns what it printed, and raises BenchError if it failed."""

    name: str
    meaning: str
    run: Callable[[], str]


def contenders(
    every: tuple[Node, ...], wanted: Path, before: Path | None = None, ansible_nodes: int = ANSIBLE_NODES
) -> tuple[Contender, ...]:
    """Return the contenders for these nodes; `before` is another checkout to measure beside this one."""
    gpu_node = _GPU_NODE
    found = [
        *_references(every),
        _drift(),
        _no_change_run(),
        Contender("dry run", "`pyinfra --dry`, nothing to do", lambda: _no_change("--dry", *gpu_node)),
        Contender("stock no-change run", "the same, hooks off", lambda: _no_change("-y", *_STOCK, *gpu_node)),
        _stock_dry_run(),
    ]
    if before is not None:
        found += [
            Contender("earlier no-change run", f"{before.name}", lambda: _no_change("-y", *gpu_node, folder=before)),
            Contender("earlier dry run", f"{before.name}", lambda: _no_change("--dry", *gpu_node, folder=before)),
        ]
    return (*found, *_ansible_check(every, wanted, ansible_nodes))


def drift_contenders(
    every: tuple[Node, ...], wanted: Path, ansible_nodes: int = ANSIBLE_NODES
) -> tuple[Contender, ...]:
    """Return the ways to ask whether every node is still what it should be."""
    return (
        *_references(every),
        Contender(
            "the probe alone",
            "one parallel OpenSSH exec per node of the probe that drift reads a node with; no aim refers to it",
            lambda: _ssh(every, str(NodeFact().command())),
        ),
        _drift(),
        _no_change_run(),
        _stock_dry_run(),
        *_ansible_check(every, wanted, ansible_nodes),
    )


def _references(every: tuple[Node, ...]) -> tuple[Contender, ...]:
    """Return what the others are compared with: it holds nothing of gpunode's."""
    asks = ", ".join(f"`{line}`" for line in FIXED_WORK.splitlines()[2:])
    return (
        Contender("ssh true", "one parallel OpenSSH exec per node of `true`", lambda: _ssh(every, "true")),
        Contender(
            "fixed work",
            f"one parallel OpenSSH exec per node of {asks}, with what they print thrown away",
            lambda: _ssh(every, FIXED_WORK),
        ),
    )


def _drift() -> Contender:
    program = [str(_PROGRAMS / "gpunode"), "drift", "--json", _GPU_NODE[0]]
    return Contender("drift", "`gpunode drift`", lambda: _finished("drift", program))


def _no_change_run() -> Contender:
    return Contender("no-change run", "`pyinfra -y`, nothing to do", lambda: _no_change("-y", *_GPU_NODE))


def _stock_dry_run() -> Contender:
    return Contender("stock dry run", "`pyinfra --dry`, hooks off", lambda: _no_change("--dry", *_STOCK, *_GPU_NODE))


def _ansible_check(every: tuple[Node, ...], wanted: Path, ansible_nodes: int) -> tuple[Contender, ...]:
    if len(every) > min(ansible_nodes, ANSIBLE_NODES):
        return ()
    meaning = "`ansible-playbook --check` of tests/bench/playbook.yml, forks = nodes, pipelining"
    return (Contender("ansible check", meaning, lambda: _ansible(every, wanted)),)


def converge() -> float:
    """Bring all nodes of the lab to what the settings ask; return the seconds it took."""
    started = time.monotonic()
    _finished("converge", [str(_PROGRAMS / "pyinfra"), "-y", "inventories/lab.py", "deploys/gpu_node.py"])
    return time.monotonic() - started


def prepare(every: tuple[Node, ...], wanted: Path, ansible_nodes: int = ANSIBLE_NODES) -> None:
    """Let each node's sshd tell its sessions, give ansible its python3-apt, and fetch the files that it compares."""
    setup = "printf 'LogLevel VERBOSE\\n' > /etc/ssh/sshd_config.d/90-bench.conf && systemctl restart ssh"
    if len(every) <= ansible_nodes:
        setup += (
            " && { dpkg -s python3-apt >/dev/null || { apt-get -q update && apt-get -q -y install python3-apt; }; }"
        )
    for node in every:
        done = nodes.run(node, setup, timeout=180)
        if done.returncode:
            raise BenchError(f"{node.name} could not be prepared: {done.stdout}{done.stderr}")
    for path in (
        "/etc/apt/sources.list.d/gpunode-cuda.sources",
        "/etc/apt/sources.list.d/gpunode-toolkit.sources",
        "/etc/apt/preferences.d/gpunode-driver",
        "/etc/containerd/config.toml",
        "/var/lib/gpunode/applied.json",
    ):
        (wanted / Path(path).name).write_text(nodes.run(every[0], f"cat {path}").stdout, encoding="utf-8")


def sessions(node: Node) -> int:
    """Return how many sessions (commands and file transfers) the node's sshd has started since it booted."""
    counted = nodes.run(node, "journalctl -q -u ssh -o cat | grep -c '^Starting session'")
    return int(counted.stdout.strip() or 0)


def _ssh(every: tuple[Node, ...], command: str) -> str:
    folder = lab_folder(LAB)
    running = [
        subprocess.Popen(
            [*access.ssh_command(folder, node.address), command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        for node in every
    ]
    failed = [process.communicate()[1].decode() for process in running if process.wait()]
    if failed:
        raise BenchError(f"ssh failed on {len(failed)} nodes: {failed[0]}")
    return ""


def _no_change(*arguments: str, folder: Path = CHECKOUT) -> str:
    printed = _finished(" ".join(arguments), [str(_PROGRAMS / "pyinfra"), *arguments], folder)
    if "--dry" in arguments:
        # The plan: a line per operation, with how many hosts it would change, a dash for none.
        plan = re.findall(r"^ {4}[^|\n]+ \| .*?(\S+) {2,}(\S+) *$", printed, re.MULTILINE)
        nothing = bool(plan) and all(line == ("-", "-") for line in plan)
    else:
        # The results: hosts, successes with a change, errors, hosts without a change.
        total = re.search(r"^ *Grand total +(\d+) +- +- +(\d+) *$", printed, re.MULTILINE)
        nothing = total is not None and total[1] == total[2]
    if not nothing:
        raise BenchError(
            f"pyinfra {' '.join(arguments)}: this run was to change nothing, but printed:\n{printed[-3000:]}"
        )
    return printed


def _ansible(every: tuple[Node, ...], wanted: Path) -> str:
    folder = lab_folder(LAB)
    inventory = wanted / "hosts.ini"
    inventory.write_text("".join(f"{node.name} ansible_host={node.address}\n" for node in every), encoding="utf-8")
    state = read_json(folder / "nodes.json")
    variables = {
        "wanted": str(wanted),
        "templates": str(CHECKOUT / "templates"),
        "fingerprint": state["key_fingerprint"],
        "driver": "580.95.05",
        "cuda": "12.9",
        "toolkit": "1.17.8",
        "ansible_user": "root",
        "ansible_ssh_private_key_file": str(folder / "id_ed25519"),
        "ansible_python_interpreter": "/usr/bin/python3",
    }
    # A fresh folder for its persistent connections each time: a run that finds them open from the last one is not the
    # run of someone who comes once an hour.
    with tempfile.TemporaryDirectory(prefix="gpunode-bench-", ignore_cleanup_errors=True) as sockets:
        printed = _finished(
            "ansible-playbook",
            [
                str(_PROGRAMS / "ansible-playbook"), "--check", "-i", str(inventory), "-f", str(len(every)),
                *(part for key, value in variables.items() for part in ("-e", f"{key}={value}")),
                "--ssh-common-args", f"-F none -o UserKnownHostsFile={folder / 'known_hosts'} -o IdentitiesOnly=yes",
                str(_BENCH / "playbook.yml"),
            ],
            extra={"ANSIBLE_PIPELINING": "True", "ANSIBLE_SSH_CONTROL_PATH_DIR": sockets, "ANSIBLE_HOME": str(wanted)},
        )  # fmt: skip
    recap = re.findall(r"changed=(\d+) +unreachable=(\d+) +failed=(\d+)", printed)
    if len(recap) != len(every) or any(figure != ("0", "0", "0") for figure in recap):
        raise BenchError(f"ansible: this run was to change nothing, but printed:\n{printed[-3000:]}")
    return printed


def _finished(name: str, command: list[str], folder: Path = CHECKOUT, extra: Mapping[str, str] | None = None) -> str:
    # Modules compiled once, as in any ordinary installation, whatever this shell says.
    environment = {**os.environ, "GPUNODE_LAB": LAB, "PYTHONPYCACHEPREFIX": str(cache_dir() / "bench"), **(extra or {})}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    # The installed package is this checkout's; another one's modules must come first.
    environment["PYTHONPATH"] = str(folder)
    done = subprocess.run(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode:
        raise BenchError(f"{name} ended with exit code {done.returncode}:\n{done.stdout[-3000:]}")
    return done.stdout
