"""One node with podman. Real: podman 4.3 of bookworm and 5.4 of trixie, runc, apt, the toolkit. SIMULATED: GPUs."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from gpunode.lab.cache import cache_dir, complete_or_nothing, locked
from gpunode.lab.nodes import Node
from gpunode.lab.packages.other_release import unpacked
from tests.molecule.conftest import Run, bad, inventory_with, out, run_to

pytestmark = pytest.mark.life

DROP_IN = "/etc/containers/containers.conf.d/50-gpunode.conf"
OTHER = "/etc/containers/containers.conf.d/99-other.conf"
# A container's files are the node's own shell, so that no image is fetched; nested, podman stores by vfs alone.
PREPARE = """
set -eu
mkdir -p /etc/containers /srv/root; cd /srv/root
mkdir -p bin dev proc sys etc tmp run var
cp --dereference --parents /lib64/ld-linux-x86-64.so.2 /lib/x86_64-linux-gnu/libc.so.6 .
cp /bin/dash bin/sh
printf '[storage]\\ndriver = "vfs"\\nrunroot = "/run/containers/storage"\\ngraphroot = "/srv/storage"\\n' \\
  > /etc/containers/storage.conf
"""
# A lab node's cgroups are not where a container's are looked for (a machine's own are): the container gets none.
OPTIONS = "--network none --mount type=tmpfs,destination=/sys/fs/cgroup --rootfs /srv/root"
_FILE = "/etc/cdi/nvidia.yaml"
_RENEW = (
    f"{{ head -n 1 {_FILE}; nvidia-ctk cdi generate 2>/dev/null; }} > /srv/new; cat /srv/new > {_FILE}; "
    "systemctl start nvidia-persistenced"
)
MIG = f"systemctl stop nvidia-persistenced; nvidia-smi -i 0 -mig 1; nvidia-smi mig -i 0 -cgi 9,14 -C; {_RENEW}"
WHOLE = (
    "systemctl stop nvidia-persistenced; nvidia-smi mig -i 0 -dci; nvidia-smi mig -i 0 -dgi; nvidia-smi -i 0 -mig 0; "
    f"{_RENEW}"
)
SEES = "for device in /dev/nvidia[0-9]*; do [ -c $device ] && echo $device; done; true"
# What podman 5.4 is linked with, and a libc of its own.
LIBRARIES = (
    "podman", "conmon", "golang-github-containers-common", "libc6", "libgpgme11t64", "libgpg-error0", "libassuan9",
    "libseccomp2", "libsubid5", "libsqlite3-0", "libsystemd0", "libglib2.0-0t64", "libcap2", "libpcre2-8-0",
    "libselinux1", "libaudit1", "libcap-ng0", "libatomic1",
)  # fmt: skip
WRAPPED = """#!/bin/sh
exec /opt/trixie/usr/lib64/ld-linux-x86-64.so.2 --library-path /opt/trixie/usr/lib/x86_64-linux-gnu \\
  /opt/trixie/usr/bin/{program} "$@"
"""


def _inventory(folder: Path, node: Node, **podman: object) -> str:
    toolkit = {"version": "1.17.8", "cdi": "generate"}
    return inventory_with(folder, {node.name: {"toolkit": toolkit, "podman": {"enabled": True, **podman}}})


def _run(folder: Path, node: Node, **podman: object) -> Run:
    return run_to(0, _inventory(folder, node, **podman))


def _bad(folder: Path, node: Node, **podman: object) -> dict[str, dict[str, Any]]:
    return bad(_inventory(folder, node, **podman), node.name)


def _seen(node: Node, *options: str) -> list[str]:
    return out(node, f"podman run --rm {' '.join(options)} {OPTIONS} /bin/sh -c '{SEES}'").split()


def test_podman_comes_with_a_specification_and_a_second_run_changes_nothing(
    nodes: tuple[Node, ...], tmp_path: Path
) -> None:
    (node,) = nodes
    assert "version" in _bad(tmp_path, node)
    changed = _run(tmp_path, node).operations("success")
    assert "Install podman of the distribution" in changed
    assert out(node, "podman --version") == "podman version 4.3.1"
    again = _run(tmp_path, node)
    assert again.operations("success") == {}, again.printed
    assert _bad(tmp_path, node) == {}


def test_a_container_that_names_the_device_sees_it_and_another_sees_none(nodes: tuple[Node, ...]) -> None:
    (node,) = nodes
    out(node, PREPARE)
    assert _seen(node, "--device", "nvidia.com/gpu=all") == ["/dev/nvidia0", "/dev/nvidia1"]
    assert _seen(node, "--device", "nvidia.com/gpu=1") == ["/dev/nvidia1"]
    assert _seen(node) == []
    out(node, MIG)
    assert _seen(node, "--device", "nvidia.com/gpu=0:0") == ["/dev/nvidia0"]
    caps = f"podman run --rm --device nvidia.com/gpu=0:1 {OPTIONS} /bin/sh -c 'echo /dev/nvidia-caps/*'"
    assert out(node, caps).split() == ["/dev/nvidia-caps/nvidia-cap30", "/dev/nvidia-caps/nvidia-cap31"]
    out(node, WHOLE)


def test_podman_takes_the_runtime_that_is_asked_for_and_its_own_again(nodes: tuple[Node, ...], tmp_path: Path) -> None:
    (node,) = nodes
    asks = "podman info --format '{{.Host.OCIRuntime.Name}}'"
    before = out(node, asks)
    _run(tmp_path, node, default_runtime="nvidia")
    assert out(node, asks) == "nvidia"
    # Somebody breaks it, and a run heals it.
    out(node, f"rm {DROP_IN}")
    assert "default runtime" in _bad(tmp_path, node, default_runtime="nvidia")
    _run(tmp_path, node, default_runtime="nvidia")
    assert out(node, asks) == "nvidia"
    # What another file says later, no run overrules.
    out(node, f"printf '[engine]\\nruntime = \"runc\"\\n' > {OTHER}")
    assert out(node, asks) == "runc"
    said = _bad(tmp_path, node, default_runtime="nvidia")["default runtime"]
    assert said["cause"] == f"{OTHER} is read after {DROP_IN} and sets runc"
    out(node, f"rm {OTHER}")
    _run(tmp_path, node)
    assert out(node, f"{asks}; test ! -e {DROP_IN}") == before


def test_a_later_podman_hands_in_its_device_by_the_same_specification(nodes: tuple[Node, ...], tmp_path: Path) -> None:
    (node,) = nodes
    subprocess.run(
        ["podman", "cp", str(_trixie()), f"{node.container}:/opt/trixie"], check=True, capture_output=True, timeout=120
    )
    for program in ("podman", "conmon"):
        out(node, f"cat > /usr/local/bin/{program} <<'E'\n{WRAPPED.format(program=program)}E")
    out(node, "chmod 755 /usr/local/bin/podman /usr/local/bin/conmon")
    assert out(node, "podman --version").startswith("podman version 5.4.")
    assert _seen(node, "--device", "nvidia.com/gpu=0") == ["/dev/nvidia0"]
    assert _seen(node) == []
    assert _bad(tmp_path, node) == {}


def _trixie() -> Path:
    """Return the folder with trixie's podman that the cache has, or gets."""
    folder = cache_dir() / "podman-5.4"
    with locked(cache_dir() / "podman-5.4.lock"):
        if not folder.is_dir():
            with complete_or_nothing(folder) as made:
                unpacked("trixie", LIBRARIES, made)
    return folder
