"""NVIDIA's own container toolkit on a lab node: every given version, upwards and downwards.

    GPUNODE_REAL_TOOLKIT=DIRECTORY make test-real

DIRECTORY has one folder a version with its finished programs: DIRECTORY/1.17.9/nvidia-ctk, nvidia-cdi-hook,
nvidia-container-runtime and nvidia-container-runtime-hook; from 1.18 on nvidia-cdi-refresh.service and .path, too, or
the lab's SIMULATED units are taken. They go into the lab's packages in place of the SIMULATED ones.

Real: the toolkit, containerd, runc, apt, systemd. SIMULATED: the GPUs and the driver with its libnvidia-ml.
nvidia-container-cli, which mode `legacy` (and `auto` before 1.18) calls, is not there: it wants a driver that answers.

The tests stand in the order of the node's life.
"""

from __future__ import annotations

import functools
import os
import subprocess
import tomllib
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from gpunode.base import tables
from gpunode.base import versions as ordered
from gpunode.components.toolkit.configuration import PATH, asked_of
from gpunode.lab import nodes as lab_nodes
from gpunode.settings import ToolkitSettings
from tests.real.toolkit_node import DRIVER, VARIABLE, ToolkitNode, given

if not os.environ.get(VARIABLE):
    pytest.skip(
        f"NVIDIA's own toolkit is put on a lab node where {VARIABLE} names a folder of its programs",
        allow_module_level=True,
    )

pytestmark = pytest.mark.real
PROGRAMS = given()
VERSIONS = tuple(PROGRAMS)
UP_AND_DOWN = (*VERSIONS, *reversed(VERSIONS[:-1]))
LAB = f"{os.environ.get('GPUNODE_TEST_LABS') or 'test'}-real-toolkit"
# What `auto` comes to before 1.18 calls nvidia-container-cli.
_OWN_CDI_SINCE = "1.18"


@pytest.fixture(scope="module")
def toolkit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ToolkitNode]:
    """Return a node with the driver, and all that the tests need beside the toolkit."""
    lab_nodes.down(LAB)
    try:
        (node,) = lab_nodes.up(LAB, 1, "h100-80gb", 2)
        found = ToolkitNode(node, tmp_path_factory.mktemp("inventory"))
        found.prepare(PROGRAMS, tmp_path_factory.mktemp("toolkit"))
        yield found
    finally:
        lab_nodes.down(LAB)


def _modes(version: str) -> tuple[str, ...]:
    return ("cdi", "auto") if ordered.at_least(ordered.major_minor(version), _OWN_CDI_SINCE) else ("cdi",)


@pytest.mark.parametrize("step", range(len(UP_AND_DOWN)), ids=[*UP_AND_DOWN[: len(VERSIONS)], *(
    f"back-to-{version}" for version in UP_AND_DOWN[len(VERSIONS) :])])  # fmt: skip
def test_a_version_comes_settles_and_hands_gpus_in_whichever_was_there_before(step: int, toolkit: ToolkitNode) -> None:
    version = UP_AND_DOWN[step]
    for mode in _modes(version):
        # The package's own script comments `debug` out again, in the very run that has set it.
        asked = {"version": version, "cdi": "generate", "mode": mode, "debug": True}
        run = toolkit.run(asked)
        assert run.code == 0, run.printed
        assert run.operations("success")
        assert toolkit.out("nvidia-ctk --version").splitlines()[0].endswith(f"version {version}")
        again = toolkit.run(asked)
        assert (again.code, again.operations("success")) == (0, {}), again.printed
        assert toolkit.findings(asked) == {}
        assert "\ndebug = " in toolkit.out(f"cat {PATH}")
        smoke = toolkit.run(asked, "deploys/smoke.py")
        assert smoke.code == 0, f"{smoke.printed}\n{toolkit.out('journalctl -u containerd -n 40 --no-pager')}"
    found = toolkit.specification()
    assert {"0", "1", "all"} <= {device["name"] for device in found["devices"]}
    mounted = [mount["hostPath"] for mount in found["containerEdits"]["mounts"]]
    assert any(path.endswith(f"/libcuda.so.{DRIVER}") for path in mounted), mounted
    # The program itself knows each hook that it is to run: since 1.18 it passes over an unknown one with a warning.
    for hook in toolkit.hooks():
        said = lab_nodes.run(toolkit.node, f"nvidia-cdi-hook {hook} --help")
        assert said.returncode == 0 and hook in said.stdout, (hook, said.stdout + said.stderr)
    assert toolkit.out("ls -A /etc | grep gpunode-cdi || true") == ""


def test_a_hook_that_came_with_a_version_is_one_by_which_gpunode_knows_it(toolkit: ToolkitNode, tmp_path: Path) -> None:
    """A specification is of a newer toolkit where it names what the table has; a hook that it lacks goes unseen."""
    known, names = tables.toolkit().hooks, {}
    for version, folder in PROGRAMS.items():
        toolkit.put(folder / "nvidia-ctk", f"/srv/{version}/nvidia-ctk", "755")
        toolkit.put(folder / "nvidia-cdi-hook", f"/srv/{version}/nvidia-cdi-hook", "755")
        text = toolkit.out(f"/srv/{version}/nvidia-ctk --quiet cdi generate --nvidia-cdi-hook-path=/srv/{version}/"
                           "nvidia-cdi-hook 2>/dev/null")  # fmt: skip
        toolkit.out("mkdir -p /etc/cdi; rm -f /etc/cdi/* /var/run/cdi/*")
        file = tmp_path / "nvidia.yaml"
        file.write_text(text)
        toolkit.put(file, "/etc/cdi/nvidia.yaml")
        names[version] = toolkit.hooks()
    for older, newer in pairwise(VERSIONS):
        for hook in names[newer] - names[older]:
            assert hook in known, f"{hook} came between {older} and {newer}"
            assert ordered.at_least(newer, known[hook]) and not ordered.at_least(older, known[hook])


def test_the_toolkit_itself_reads_every_key_that_gpunode_writes(toolkit: ToolkitNode) -> None:
    version = VERSIONS[-1]
    asked = {"version": version, "cdi": "generate", "mode": "cdi", "debug": True, "preset": "shared"}
    keys = asked_of(ToolkitSettings.model_validate(asked))
    run = toolkit.run(asked)
    assert run.code == 0, run.printed
    # The program prints the file as it understands it, but for logs, which it comments out where they are the usual.
    said = tomllib.loads(toolkit.out(f"nvidia-ctk --quiet config --config-file={PATH}"))
    keys = {key: value for key, value in keys.items() if key[-1] != "debug"}
    found: dict[tuple[str, ...], Any] = {key: functools.reduce(dict.__getitem__, key, said) for key in keys}
    assert len(keys) == 4 and found == keys, said
    toolkit.out("rm -f /var/log/nvidia-container-runtime.log")
    smoke = toolkit.run(asked, "deploys/smoke.py")
    assert smoke.code == 0, smoke.printed
    # What unprivileged containers may ask, and where the runtime tells of it.
    assert toolkit.out("grep -c . /var/log/nvidia-container-runtime.log") != "0"


def test_a_driver_that_is_gone_is_told_in_the_program_s_own_words(toolkit: ToolkitNode) -> None:
    done: subprocess.CompletedProcess[str] = lab_nodes.run(
        toolkit.node, "mv /sys/module/nvidia/version /run/v; nvidia-ctk cdi generate; s=$?; "
        "mv /run/v /sys/module/nvidia/version; exit $s"
    )  # fmt: skip
    assert done.returncode != 0 and "Driver Not Loaded" in done.stderr + done.stdout
