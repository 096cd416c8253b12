"""Parsers of what probes print: right answers, and garbage that must not pass for one."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpunode.base import probe_output
from gpunode.base.messages import split_remedy
from gpunode.base.reading import Reading, Unknown
from gpunode.components.runtimes.containerd.state import parse_containerd
from gpunode.facts.node import PARTS, Node
from gpunode.facts.node import Machine as MachineFact
from gpunode.node import Node as NodeReading
from gpunode.packages.installed_packages import InstalledPackages
from tests.support.messages import unnamed
from tests.support.readings import encoded

pytestmark = pytest.mark.pure

MERGED = """
version = 2
[plugins."io.containerd.grpc.v1.cri".containerd]
default_runtime_name = "nvidia"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia.options]
BinaryName = "/usr/bin/nvidia-container-runtime"
SystemdCgroup = true
"""
CONTAINERD = [
    "ActiveState=active", "UnitFileState=enabled", "started=Tue 2023-11-14 22:13:20.250000 UTC",
    "written=1700000000.500000", "binary=/usr/bin/containerd", "config=/etc/containerd/config.toml",
    "version=containerd github.com/containerd/containerd 1.6.20~ds1 1.6.20~ds1-1+deb12u1",
    f"merged={encoded(MERGED)}", f"text={encoded('version = 2')}",
    "plugin=io.containerd.grpc.v1  cri  linux/amd64  ok", "shims=0",
]  # fmt: skip


def test_containerd_is_read_as_the_running_unit_has_it() -> None:
    containerd = parse_containerd(CONTAINERD)
    assert (containerd.version, containerd.default_runtime, containerd.cri_plugin) == ("1.6.20", "nvidia", "ok")
    assert next(each for each in containerd.runtimes if each.name == "nvidia").systemd_cgroup
    # By a file that was written in the second of its start.
    assert containerd.stale
    assert not parse_containerd([line.replace("20.250000", "20.750000") for line in CONTAINERD]).stale
    # The worse part counts.
    lines = [*CONTAINERD, "plugin=io.containerd.cri.v1  runtime  linux/amd64  error"]
    assert parse_containerd(lines).cri_plugin == "error"


def test_registry_credentials_in_the_file_are_not_in_a_fact_s_json() -> None:
    lines = [line for line in CONTAINERD if not line.startswith("text=")] + [f"text={encoded('password = 123')}"]
    assert "password" not in json.dumps(parse_containerd(lines).to_json())
    assert "123" not in repr(parse_containerd(lines))


ANY = {"toolkit": None, "base": None}


@pytest.mark.parametrize(
    "installed, wanted, asked",
    [
        ({}, ANY, ANY),
        ({"toolkit": "1.17.8-1", "base": "1.17.8-1"}, ANY, ANY),
        ({"toolkit": "1.17.8-1", "base": "1.17.8-2"}, ANY, ANY),
        ({"toolkit": "1.17.7-1", "base": "1.17.8-1"}, ANY, dict.fromkeys(ANY, "1.17.8")),
        ({"toolkit": "1.17.10-1", "base": "1.17.9-1"}, ANY, dict.fromkeys(ANY, "1.17.10")),
        ({"toolkit": "1.17.8-1"}, ANY, dict.fromkeys(ANY, "1.17.8")),
        (
            {"toolkit": "1.17.8-1", "base": "1.18.0-1"},
            dict.fromkeys(ANY, "1.17.8"),
            dict.fromkeys(ANY, "1.17.8"),
        ),
    ],
)
def test_packages_that_belong_together_are_asked_for_at_the_newest_version_that_is_there(
    installed: dict[str, str], wanted: dict[str, str | None], asked: dict[str, str | None]
) -> None:
    present = InstalledPackages(tuple(sorted({**installed, "another": "99-1"}.items())))
    assert present.together(wanted) == asked


@pytest.mark.parametrize("output", [[], [""], ["rubbish"], ["rubbish", probe_output.END], [probe_output.END]])
def test_garbage_in_place_of_a_node_is_unknown(output: list[str]) -> None:
    assert isinstance(Node().process(output), Unknown)


@given(lines=st.lists(st.text(max_size=60), max_size=12), name=st.sampled_from(sorted(PARTS)))
def test_no_parser_raises_anything(lines: list[str], name: str) -> None:
    assert isinstance(PARTS[name]().process([*lines, probe_output.END]), Reading)


def test_a_node_s_reading_can_be_printed_as_json() -> None:
    lines = []
    minimal: dict[str, list[str]] = {
        "operating_system": ["os.ID=debian", "architecture=x86_64", "kernel=6.1"], "gpus": ["absent=yes"],
        "boot": ["running=6.1"], "mig": ["absent=yes"],
    }  # fmt: skip
    for name in PARTS:
        lines += [f"{probe_output.SECTION}{name}", *minimal.get(name, [])]
    reading = Node().process([*lines, "", probe_output.END])
    assert isinstance(reading, NodeReading)
    assert json.loads(json.dumps(reading.to_json()))["operating_system"]["id"] == "debian"


def test_every_fact_prints_its_closing_line_and_exits_zero(run_shell: Callable[[str], tuple[int, list[str]]]) -> None:
    for fact in PARTS.values():
        code, lines = run_shell(fact().command())
        assert code == 0, fact
        assert lines[-1] == probe_output.END, fact
        fact().process(lines)


@pytest.mark.real
def test_whoever_is_not_root_gets_no_reading_of_a_node() -> None:
    """A node hides most of itself from others: what they read would be judged as a bare one."""
    fact = MachineFact()
    nobody = 65534 if os.geteuid() == 0 else os.geteuid()
    done = subprocess.run(
        ["sh", "-c", fact.command()], capture_output=True, text=True, timeout=60, check=True, user=nobody, cwd="/"
    )
    refused = fact.process(done.stdout.splitlines())
    assert isinstance(refused, Unknown)
    cause, remedy = split_remedy(refused.reason)
    assert unnamed(cause, nobody) == [] and unnamed(remedy, "_sudo = True") == []


@pytest.mark.real
@pytest.mark.skipif(os.geteuid() != 0, reason="only root reads as root")
def test_root_is_not_told_of(run_shell: Callable[[str], tuple[int, list[str]]]) -> None:
    assert "user=0" not in "".join(run_shell(MachineFact().command())[1])
    assert MachineFact().process(run_shell(MachineFact().command())[1]).operating_system.architecture
