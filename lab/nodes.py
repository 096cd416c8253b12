"""Nodes of a lab: real systemd machines in podman, on a network of their own, reached over real SSH."""

from __future__ import annotations

import ipaddress
import json
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from gpunode.lab import access, inside
from gpunode.lab.cache import cache_dir, locked
from gpunode.lab.errors import LabError
from gpunode.lab.families import APT, family_named
from gpunode.lab.family_mirror import build_family_mirror
from gpunode.lab.hardware.simulated.machine import gpu_models
from gpunode.lab.image import build_id, image, remove_unused, tools
from gpunode.lab.packages.deb import DebError
from gpunode.lab.podman import attempt, inspect_containers, podman
from gpunode.lab.preconditions import check_preconditions, make_room
from gpunode.lab.repository import RepositoryError, build_mirror
from gpunode.lab.signing import SigningError
from gpunode.lab.state import lab_folder, lab_name, labs_folder, labs_owner, read_json, told_command, write_json
from gpunode.lab.toolkit_repository import build_toolkit_repository

Report = Callable[[str], None]

MAX_NODES = 200
MAX_GPUS = 16
# The first addresses of the network are the bridge's; the node's number is added to this one.
_FIRST_ADDRESS = 10
_READY_SECONDS = 90.0
# It waits for the boot's end, and tells how far it is after some seconds at the latest.
_BOOTED = "timeout 5 systemctl is-system-running --wait > /dev/null 2>&1; systemctl is-system-running"


@dataclass(frozen=True)
class Node:
    """One node: its name in the lab, its container, its IPv4 address, the model and number of its simulated GPUs.

    A virtual machine (lab.vm) has no container, and a port of its own for SSH. `family` is its package manager's.
    `nvidia_toolkit`: its container toolkit's repository has NVIDIA's own programs (lab.toolkit_repository).
    """

    name: str
    container: str
    address: str
    gpu: str
    gpus: int
    lab: str
    port: int = 22
    family: str = APT
    nvidia_toolkit: bool = False

    @property
    def folder(self) -> Path:
        """The folder on this machine that the node sees as /etc/gpunode-lab."""
        return lab_folder(self.lab) / self.name


@dataclass(frozen=True)
class _Parts:
    """What every new node is made from: root filesystem (and which build of it), repositories, their fingerprint."""

    image: Path
    build: str
    mirror: Path
    key_fingerprint: str


_known: dict[tuple[str, bool], _Parts] = {}


def up(
    lab: str, count: int, gpu: str, gpus: int, report: Report = lambda line: None, *, renew: bool = False,
    family: str = APT, root: Path | None = None, nvidia_toolkit: bool = False,
) -> tuple[Node, ...]:  # fmt: skip
    """Bring `count` nodes with `gpus` GPUs of model `gpu` up, and return all nodes of the lab.

    Nodes that are up are kept; what is missing is started; `renew` makes nodes anew that have other GPUs or another
    package manager (`family`) than asked or were made from an older image. New nodes have the files under `root`, such
    as `copies.root_of` returned, in place of the image's. With `nvidia_toolkit` their container toolkit's repository
    has NVIDIA's own programs, which are built where the cache has none. Raises LabError for impossible demands, a
    machine that lacks something, or a node that does not become ready.
    """
    lab = lab_name(lab)
    _check_demand(count, gpu, gpus)
    check_preconditions()
    with locked(labs_folder() / f"{lab}.lock"):
        _check_owner(lab)
        if (lab_folder(lab) / "vm").exists():
            raise LabError(
                f"lab {lab} is a virtual machine: choose another name with --lab, or end it: "
                f"{told_command(lab, 'down')}"
            )
        existing = _containers(lab)
        _check_hardware(lab, existing, count, (gpu, gpus, family, nvidia_toolkit), renew)
        make_room(max(count, len(existing)), report)
        parts = _parts(report, family, nvidia_toolkit)
        from_which = parts if root is None else replace(parts, image=root)
        base = _network(lab)
        folder = lab_folder(lab)
        access.client_key(folder)
        for number in range(1, count + 1):
            address = str(base[_FIRST_ADDRESS + number])
            container = f"gpunode-{lab}-gpu-{number}"
            node = Node(
                f"gpu-{number}", container, address, gpu, gpus, lab, family=family, nvidia_toolkit=nvidia_toolkit
            )
            if reason := _reason_to_make(node, existing.get(node.name), parts, renew):
                _make(node, from_which)
                report(f"{node.name}: started at {node.address} with {gpus} × {gpu} SIMULATED ({reason})")
            elif _is_running(existing[node.name]):
                note = _age_note(existing[node.name], parts) if root is None else ""
                report(f"{node.name}: is up already, kept{note}")
            else:
                podman("start", node.container)
                report(f"{node.name}: was stopped, started again")
        every = _all_nodes(lab)
        _write_state(lab, every, parts.key_fingerprint)
        for node in every:
            _wait(node, report)
        remove_unused(report)
        return every


def made_from(report: Report, family: str = APT, *, nvidia_toolkit: bool = False) -> str:
    """Return text that differs where new nodes come from another build of an image, or trust another key."""
    parts = _parts(report, family, nvidia_toolkit)
    return f"{parts.build} {parts.key_fingerprint}"


def down(lab: str, report: Report = lambda line: None) -> None:
    """Remove the lab's containers, network and folder, and nothing of any other lab; fine if there is none."""
    lab = lab_name(lab)
    lock = labs_folder() / f"{lab}.lock"
    with locked(lock):
        _check_owner(lab)
        found = _containers(lab)
        for name, container in sorted(found.items(), key=lambda item: _number(item[0])):
            podman("rm", "--force", "--volumes", "--time", "0", container["Id"])
            report(f"{name}: removed")
        if not attempt("network", "exists", _network_name(lab)).returncode:
            podman("network", "rm", _network_name(lab))
        had_folder = lab_folder(lab).exists()
        shutil.rmtree(lab_folder(lab), ignore_errors=True)
        if not found and not had_folder:
            report(f"lab {lab}: nothing to remove")
        lock.unlink(missing_ok=True)


def nodes(lab: str) -> tuple[Node, ...]:
    """Return the lab's nodes in order of their numbers, from nodes.json; none if the lab is not up."""
    lab = lab_name(lab)
    state = read_json(lab_folder(lab) / "nodes.json")
    return tuple(
        Node(
            lab=lab,
            name=entry["name"],
            container=entry["container"],
            address=entry["address"],
            gpu=entry["gpu"],
            gpus=entry["gpus"],
            port=entry.get("port", 22),
            family=entry.get("family", APT),
            nvidia_toolkit=entry.get("nvidia_toolkit", False),
        )
        for entry in state.get("nodes", ())
    )


def node(lab: str, name: str) -> Node:
    """Return the lab's node of that name; LabError names those that there are."""
    every = nodes(lab)
    for candidate in every:
        if candidate.name == name:
            return candidate
    there = ", ".join(candidate.name for candidate in every)
    remedy = f"there are: {there}" if there else f"the lab is not up: run `{told_command(lab, 'up')}`"
    raise LabError(f"lab {lab} has no node {name!r}; {remedy}")


def run(node: Node, command: str, timeout: float = 60) -> subprocess.CompletedProcess[str]:
    """Run a shell command as root in the node, past SSH, and return the finished process whatever its exit code.

    Raises LabError if it takes longer than `timeout` seconds.
    """
    return inside.run(node.container, _first_process(node), node.name, command, timeout)


def states(lab: str) -> dict[str, str]:
    """Return for each container of the lab, by node name, what podman says of it, such as `running`."""
    return {name: str(container["State"]["Status"]) for name, container in _containers(lab_name(lab)).items()}


def recreate(
    node: Node, *, gpu: str | None = None, gpus: int | None = None, family: str | None = None,
    report: Report = lambda line: None,
) -> Node:  # fmt: skip
    """Make the node anew from the base image: same name, address and host key, no faults, and return it when ready.

    `gpu` and `gpus` give it other simulated GPUs; 0 GPUs is a machine without any. `family` gives it another package
    manager. A node that was made from a copy of another is bare afterwards.
    """
    model, number, manager = gpu or node.gpu, node.gpus if gpus is None else gpus, family or node.family
    _check_demand(1, model, number)
    with locked(labs_folder() / f"{node.lab}.lock"):
        parts = _parts(report, manager, node.nvidia_toolkit)
        fresh = replace(node, gpu=model, gpus=number, family=manager)
        _make(fresh, parts)
        _write_state(node.lab, _all_nodes(node.lab), parts.key_fingerprint)
        _wait(fresh, report)
        return fresh


def booted(node: Node) -> str:
    """Return when the node's systemd came up, as text that differs from boot to boot; empty while it is down."""
    return run(node, "systemctl show -p UserspaceTimestampMonotonic --value").stdout.strip()


def reboot(node: Node, report: Report = lambda line: None) -> None:
    """Reboot the node from within, and return when the new boot is ready; raises LabError if none comes."""
    before = booted(node)
    run(node, "systemctl --no-block reboot")
    deadline = time.monotonic() + _READY_SECONDS
    while booted(node) in ("", before):
        if time.monotonic() > deadline:
            raise LabError(f"{node.name} did not reboot within {_READY_SECONDS:.0f} seconds")
        time.sleep(0.2)
    _wait(node, report)


def set_fault(node: Node, **faults: object) -> None:
    """Add faults to the node's simulated hardware (such as hang=True, lost_gpu=0), keeping those set before."""
    path = node.folder / "faults.json"
    write_json(path, read_json(path) | faults)


def clear_faults(node: Node) -> None:
    """Take all faults from the node's simulated hardware."""
    write_json(node.folder / "faults.json", {})


def _check_demand(count: int, gpu: str, gpus: int) -> None:
    if not 1 <= count <= MAX_NODES:
        raise LabError(f"--nodes {count}: not allowed; allowed are 1 to {MAX_NODES}")
    if not 0 <= gpus <= MAX_GPUS:
        raise LabError(f"--gpus {gpus}: not allowed; allowed are 0 (a machine without GPUs) to {MAX_GPUS}")
    models = sorted(gpu_models())
    if gpu not in models:
        raise LabError(f"--gpu {gpu}: no such simulated GPU; there are: {', '.join(models)}")


def _check_owner(lab: str) -> None:
    # Two checkouts may have labs of the same name, yet podman's names are one space.
    for container in inspect_containers(f"label=gpunode.lab={lab}"):
        owner = container["Config"]["Labels"].get("gpunode.checkout", "")
        if owner != labs_owner():
            raise LabError(
                f"lab {lab} is up from another folder, {owner}: take it down there with `{told_command(lab, 'down')}`, "
                "or choose another name with --lab or GPUNODE_LAB"
            )


def _check_hardware(
    lab: str, existing: dict[str, dict[str, Any]], count: int, wanted: tuple[str, int, str, bool], renew: bool
) -> None:
    gpu, gpus, family, nvidia_toolkit = wanted
    for number in range(1, count + 1):
        found = existing.get(f"gpu-{number}")
        if found is None or renew:
            continue
        has = _from_labels(found)
        if (has.gpu, has.gpus, has.family, has.nvidia_toolkit) != wanted:
            actual = _packages(has.family, has.nvidia_toolkit)
            raise LabError(
                f"{has.name} of lab {lab} is up with {has.gpus} × {has.gpu} and {actual}, not {gpus} × {gpu} and "
                f"{_packages(family, nvidia_toolkit)}: ask for what it has, or use --recreate to make it anew "
                "(its files are lost)"
            )


def _packages(family: str, nvidia_toolkit: bool) -> str:
    return f"{family} with NVIDIA's container toolkit" if nvidia_toolkit else family


def _parts(report: Report, family_name: str, nvidia_toolkit: bool) -> _Parts:
    """Return what nodes of a family are made from, found or built by this process once: to look takes seconds."""
    key = (family_name, nvidia_toolkit)
    known = _known.get(key)
    if known is None or build_id(known.image) != known.build or not known.mirror.is_dir():
        known = _known[key] = _built(report, family_name, nvidia_toolkit)
    return known


def _built(report: Report, family_name: str, nvidia_toolkit: bool) -> _Parts:
    of = family_named(family_name)
    root = image(report, of)
    try:
        mirror = build_mirror(cache_dir(), report)
        if of is not None:
            build_family_mirror(of, cache_dir(), mirror.path, tools(report, of), report)
        if nvidia_toolkit:
            build_toolkit_repository(cache_dir(), mirror.path, report)
    except (RepositoryError, DebError, SigningError) as error:
        raise LabError(f"the lab's package repositories cannot be built: {error}") from error
    return _Parts(root, build_id(root), mirror.path, mirror.key_fingerprint)


def _reason_to_make(node: Node, found: dict[str, Any] | None, parts: _Parts, renew: bool) -> str:
    if found is None:
        return "new"
    labels = found["Config"]["Labels"]
    # A cache that was emptied may hold another build of the same image by now.
    if build_id(Path(labels.get("gpunode.image", ""))) != labels.get("gpunode.build"):
        return "made anew: the image it was made from is no longer in the cache"
    if labels.get("gpunode.key") != parts.key_fingerprint or labels.get("gpunode.mirror") != str(parts.mirror):
        return "made anew: its package repositories are no longer in the cache"
    if not (node.folder / "ssh" / "ssh_host_ed25519_key").exists():
        return "made anew: its folder in .lab was lost"
    has = _from_labels(found)
    asked = (node.gpu, node.gpus, node.family, node.nvidia_toolkit)
    if renew and ((has.gpu, has.gpus, has.family, has.nvidia_toolkit) != asked or _age_note(found, parts)):
        return "made anew, as desired"
    return ""


def _age_note(found: dict[str, Any], parts: _Parts) -> str:
    if found["Config"]["Labels"].get("gpunode.image") == str(parts.image):
        return ""
    return " (made from an older image; --recreate renews it)"


def _first_process(node: Node) -> Path:
    """Return the file with the number of the node's first process; podman writes it at each of its starts."""
    return lab_folder(node.lab) / f"{node.name}.pid"


def _make(node: Node, parts: _Parts) -> None:
    attempt("rm", "--force", "--volumes", "--time", "0", node.container)
    _first_process(node).unlink(missing_ok=True)
    folder = lab_folder(node.lab)
    access.prepare_host(node.folder, node.name, folder / "id_ed25519")
    write_json(node.folder / "hardware.json", {"gpu": node.gpu, "count": node.gpus})
    write_json(node.folder / "faults.json", {})
    labels = {
        "lab": node.lab,
        "node": node.name,
        "address": node.address,
        "gpu": node.gpu,
        "gpus": str(node.gpus),
        "family": node.family,
        "toolkit": "nvidia" if node.nvidia_toolkit else "simulated",
        "image": str(parts.image),
        "build": parts.build,
        "mirror": str(parts.mirror),
        "key": parts.key_fingerprint,
        "checkout": labs_owner(),
    }
    podman(
        *("run", "--detach", "--name", node.container, "--hostname", node.name),
        *(part for key, value in labels.items() for part in ("--label", f"gpunode.{key}={value}")),
        *("--network", _network_name(node.lab), "--ip", node.address),
        *("--systemd=always", "--privileged", "--restart=always", "--pidfile", str(_first_process(node))),
        *("--ulimit", "nofile=20000:20000", "--ulimit", "nproc=6000:6000"),
        *("--volume", f"{node.folder}:/etc/gpunode-lab:rw"),
        *("--volume", f"{parts.mirror}:/srv/gpunode-lab/mirror:ro"),
        *("--rootfs", f"{parts.image}:O", "/sbin/init"),
    )


def _wait(node: Node, report: Report) -> None:
    started = last = time.monotonic()
    state, sshd = "starting", "not tried"
    while time.monotonic() - started < _READY_SECONDS:
        state = run(node, _BOOTED, timeout=30).stdout.strip()
        if state == "degraded":
            failed = run(node, "systemctl list-units --state=failed --plain --no-legend").stdout.split("\n")
            units = ", ".join(line.split()[0] for line in failed if line.split())
            report(
                f"{node.name}: degraded, failed units: {units}; look with `{told_command(node.lab, 'ssh', node.name)}`"
            )
        if state in ("running", "degraded"):
            command = [*access.ssh_command(lab_folder(node.lab), node.address), "true"]
            answer = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
            if answer.returncode == 0:
                report(f"{node.name}: ready, systemd {state}, sshd answers at {node.address}")
                return
            sshd = answer.stderr.strip()
        if time.monotonic() - last >= 5:
            last = time.monotonic()
            report(f"{node.name}: waiting, systemd says {state or 'nothing'}; {last - started:.0f} s")
        time.sleep(0.2)
    raise LabError(
        f"{node.name} did not become ready within {_READY_SECONDS:.0f} seconds: systemd says {state or 'nothing'}, "
        f"ssh says: {sshd}. Look with `podman logs {node.container}`, or start over with "
        f"`{told_command(node.lab, 'down')}`"
    )


def _network_name(lab: str) -> str:
    return f"gpunode-{lab}"


def _network(lab: str) -> ipaddress.IPv4Network:
    name = _network_name(lab)
    if attempt("network", "exists", name).returncode:
        # Nodes are reached by address; podman's name server would need one more package.
        podman("network", "create", "--disable-dns", "--label", f"gpunode.lab={lab}", name)
    described = json.loads(podman("network", "inspect", name))[0]
    subnet = next(entry["subnet"] for entry in described["subnets"] if "." in entry["subnet"])
    return ipaddress.IPv4Network(subnet)


def _containers(lab: str) -> dict[str, dict[str, Any]]:
    return {
        container["Config"]["Labels"]["gpunode.node"]: container
        for container in inspect_containers(f"label=gpunode.lab={lab}")
    }


def _from_labels(container: dict[str, Any]) -> Node:
    labels = container["Config"]["Labels"]
    return Node(
        name=labels["gpunode.node"],
        container=container["Name"],
        address=labels["gpunode.address"],
        gpu=labels["gpunode.gpu"],
        gpus=int(labels["gpunode.gpus"]),
        lab=labels["gpunode.lab"],
        # Nodes of before there were others have no such label.
        family=labels.get("gpunode.family", APT),
        nvidia_toolkit=labels.get("gpunode.toolkit") == "nvidia",
    )


def _all_nodes(lab: str) -> tuple[Node, ...]:
    found = (_from_labels(container) for container in _containers(lab).values())
    return tuple(sorted(found, key=lambda node: _number(node.name)))


def _number(name: str) -> int:
    return int(name.rpartition("-")[2])


def _is_running(container: dict[str, Any]) -> bool:
    # podman's record can outlive the process, if this machine went down hard.
    process = int(container["State"].get("Pid") or 0)
    return container["State"]["Status"] == "running" and Path(f"/proc/{process}").exists()


def _write_state(lab: str, every: tuple[Node, ...], key_fingerprint: str) -> None:
    folder = lab_folder(lab)
    keys = [(node.address, access.prepare_host(node.folder, node.name, folder / "id_ed25519")) for node in every]
    access.write_known_hosts(folder / "known_hosts", keys)
    write_json(
        folder / "nodes.json",
        {"lab": lab, "key_fingerprint": key_fingerprint, "nodes": [asdict(node) for node in every]},
    )
    access.hand_to_caller(folder)
