"""Whether new files change what containerd makes of all of them, and what then becomes of them without a restart."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from typing import Any

import pytest
import tomlkit

from gpunode.components.containerd.change import change
from gpunode.components.containerd.drop_in import PATH, drop_in, with_import
from gpunode.components.containerd.editor import Runtimes, render
from gpunode.components.containerd.merged import stays_the_same
from gpunode.components.containerd.state import Containerd, DropIn
from gpunode.facts.containerd import Containerd as ContainerdFact
from gpunode.operations import containerd
from tests.support.containerd_change import GLOB, KUBEADM
from tests.support.containerd_merged import TAKEN_FOR_GRANTED, right, said
from tests.support.messages import unnamed
from tests.support.simulated_host import Host, commands

pytestmark = pytest.mark.pure
ASKED: dict[str, Any] = {"default_runtime": "nvidia", "systemd_cgroup": True, "nvidia": True, "restart_allowed": False}


def same(found: Containerd, placement: Any = "root") -> bool:
    wanted = change(found, Runtimes(), placement)
    assert wanted is not None
    return stays_the_same(found, wanted)


@pytest.mark.parametrize(
    ("text", "stays"),
    [
        (right().replace(TAKEN_FOR_GRANTED, ""), True),
        (right().replace(TAKEN_FOR_GRANTED, "") + "oom_score = 5\n", True),
        # What containerd does otherwise as long as the file does not say it.
        (right().replace('default_runtime_name = "nvidia"', 'default_runtime_name = "runc"'), False),
        (KUBEADM, False),
    ],
)
def test_a_key_that_is_written_as_containerd_takes_it_anyway_changes_nothing(text: str, stays: bool) -> None:
    merged = render(text, "1.7.24", Runtimes()) if stays else text
    assert same(said("1.7.24", text, merged)) is stays


def test_a_value_of_another_kind_is_another_value() -> None:
    text = right().replace(TAKEN_FOR_GRANTED, "")
    merged = right().replace(TAKEN_FOR_GRANTED, "privileged_without_host_devices = 0\n")
    assert not same(said("1.7.24", text, merged))


def test_a_key_that_goes_may_change_anything() -> None:
    old = right("2.1.9")
    there = DropIn(PATH, section=True, text=drop_in(old, "2.1.9", Runtimes()) + "\n[debug]\nlevel = 'info'\n")
    found = said("2.1.9", with_import(old, "2.1.9"), f"{old}\n[debug]\nlevel = 'info'\n", drop_ins=(there,))
    assert not same(found, "drop-in")


def test_a_new_drop_in_that_says_what_the_root_file_said_changes_nothing() -> None:
    """Under containerd 2 the dump has the CRI plugin under another name than a file of version 2."""
    root = tomlkit.parse(right("2.1.9"))
    dump = tomlkit.parse(right("2.1.9"))
    dump["version"] = 3
    dump["plugins"] = {"io.containerd.cri.v1.runtime": root["plugins"]["io.containerd.grpc.v1.cri"]}
    assert same(said("2.1.9", tomlkit.dumps(root), tomlkit.dumps(dump)), "drop-in")


def test_a_drop_in_whose_section_takes_that_of_somebody_else_s_changes_what_cannot_be_told() -> None:
    other = DropIn("/etc/containerd/conf.d/50.toml", section=True, text="")
    root = GLOB + right()
    assert same(said("1.7.24", root, root), "drop-in")
    assert not same(said("1.7.24", root, root, drop_ins=(other,)), "drop-in")


def test_a_drop_in_that_goes_and_a_dump_that_is_not_known_change_what_cannot_be_told() -> None:
    root = with_import(right(), "1.7.24")
    there = DropIn(PATH, section=True, text=drop_in(root, "1.7.24", Runtimes()))
    assert not same(said("1.7.24", root, root, drop_ins=(there,)))
    text = right().replace(TAKEN_FOR_GRANTED, "")
    assert not same(replace(said("1.7.24", text, right()), merged_text=None))


def test_a_drop_in_of_ours_that_a_hand_has_spoilt_changes_what_cannot_be_told() -> None:
    there = DropIn(PATH, error="Invalid", text="= =")
    root = with_import(right("2.1.9"), "2.1.9")
    assert not same(said("2.1.9", root, root, drop_ins=(there,)), "drop-in")


def test_another_schema_version_changes_what_cannot_be_told() -> None:
    before = "oom_score = 1\n"
    assert not same(said("1.7.24", before, render(before, "1.7.24", Runtimes())))


@pytest.fixture
def spare(host: Host) -> Containerd:
    """Return a node with containers whose file lacks what containerd takes for granted."""
    found = said("1.7.24", right().replace(TAKEN_FOR_GRANTED, ""), right(), shims=2)
    host.readings[ContainerdFact] = found
    return found


def test_what_takes_no_restart_is_written_under_running_containers_and_the_node_is_told_not_to_restart(
    host: Host, spare: Containerd
) -> None:
    assert "\nact=nothing\n" in _script()
    assert (host.refusals, host.noops) == ([], [])
    # Where a restart is allowed, the node itself sees that none is needed.
    host.readings[ContainerdFact] = replace(spare, shims=0)
    assert "\nact=restart\n" in _script()


@pytest.mark.parametrize(
    "differs", [{"loaded": "other"}, {"cri_plugin": "error"}, {"merged_text": KUBEADM}, {"unit_written_at": 11.0}]
)
def test_what_takes_a_restart_or_may_take_one_waits(host: Host, spare: Containerd, differs: dict[str, Any]) -> None:
    host.readings[ContainerdFact] = replace(spare, **differs)
    assert commands(containerd.configuration, host, **ASKED) == []
    (noop,) = host.noops
    assert unnamed(noop, "restart pending", "2 containers", "disruption.allow", "nothing") == []


def test_the_merged_configuration_is_in_no_output() -> None:
    found = said("1.7.24", "", "password = 'hunter2'")
    assert "hunter2" not in json.dumps(found.to_json()) + repr(found)


def _script() -> str:
    """Return the transaction's script, which travels by standard input."""
    (command,) = containerd.configuration._inner(**ASKED)
    return base64.b64decode(command.connector_arguments["_stdin"][0]).decode()
