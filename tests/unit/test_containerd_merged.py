"""Whether new files change what containerd makes of all of them, and what then becomes of them without a restart."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from typing import Any

import pytest
import tomlkit

from gpunode.base.disruption import Disruption
from gpunode.components.containerd.change import needed_change
from gpunode.components.containerd.decide import Desired
from gpunode.components.containerd.drop_in import PATH, drop_in, with_import
from gpunode.components.containerd.editor import Runtimes, render
from gpunode.components.containerd.merged import keeps_merged
from gpunode.components.containerd.state import Containerd, DropIn
from gpunode.facts.containerd import Containerd as ContainerdFact
from gpunode.operations import containerd
from tests.support.containerd_change import GLOB, KUBEADM
from tests.support.containerd_merged import TAKEN_FOR_GRANTED, right, said
from tests.support.messages import unnamed
from tests.support.simulated_host import Host, commands

pytestmark = pytest.mark.pure
DESIRED = Desired(allowed=Disruption.nothing)


def same(found: Containerd, placement: Any = "root") -> bool:
    wanted = needed_change(found, Runtimes(), placement)
    assert wanted is not None
    return keeps_merged(found, wanted)


LESS, IMPORTS = right().replace(TAKEN_FOR_GRANTED, ""), with_import(right("2.1.9"), "2.1.9")
DEBUG = "\n[debug]\nlevel = 'info'\n"
OWN, OTHER = DropIn(PATH, section=True), DropIn("/etc/containerd/conf.d/50.toml", section=True, text="")


def under_another_name(text: str) -> str:
    """Return a file of version 2 as containerd 2 dumps it: the CRI plugin has another name."""
    dump = tomlkit.parse(text)
    plugin = dump["plugins"]["io.containerd.grpc.v1.cri"]
    dump.update({"version": 3, "plugins": {"io.containerd.cri.v1.runtime": plugin}})
    return tomlkit.dumps(dump)


@pytest.mark.parametrize(
    ("version", "root", "merged", "placement", "drop_ins", "stays"),
    [
        ("1.7.24", LESS, right(), "root", (), True),
        ("1.7.24", LESS + "oom_score = 5\n", render(LESS + "oom_score = 5\n", "1.7.24", Runtimes()), "root", (), True),
        # What containerd does otherwise as long as the file does not say it.
        ("1.7.24", *[right().replace('name = "nvidia"', 'name = "runc"', 1)] * 2, "root", (), False),
        ("1.7.24", KUBEADM, KUBEADM, "root", (), False),
        # A value of another kind is another value.
        ("1.7.24", LESS, right().replace("host_devices = false", "host_devices = 0"), "root", (), False),
        # A key that goes may change anything.
        ("2.1.9", IMPORTS, right("2.1.9") + DEBUG, "drop-in",
         (replace(OWN, text=drop_in(right("2.1.9"), "2.1.9", Runtimes()) + DEBUG),), False),
        ("2.1.9", right("2.1.9"), under_another_name(right("2.1.9")), "drop-in", (), True),
        # A section that takes the place of somebody else's, one that goes, and one that a hand has spoilt.
        ("1.7.24", GLOB + right(), GLOB + right(), "drop-in", (), True),
        ("1.7.24", GLOB + right(), GLOB + right(), "drop-in", (OTHER,), False),
        ("1.7.24", *[with_import(right(), "1.7.24")] * 2, "root",
         (replace(OWN, text=drop_in(with_import(right(), "1.7.24"), "1.7.24", Runtimes())),), False),
        ("2.1.9", IMPORTS, IMPORTS, "drop-in", (DropIn(PATH, error="Invalid", text="= ="),), False),
        # Another schema version.
        ("1.7.24", "oom_score = 1\n", render("oom_score = 1\n", "1.7.24", Runtimes()), "root", (), False),
    ],
)  # fmt: skip
def test_files_stay_the_same_where_all_that_is_merged_is_known_to_do_so(
    version: str, root: str, merged: str, placement: Any, drop_ins: tuple[DropIn, ...], stays: bool
) -> None:
    found = said(version, root, merged, drop_ins=drop_ins)
    assert same(found, placement) is stays
    assert not same(replace(found, merged_text=None), placement)


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
    assert commands(containerd.configuration, host, desired=DESIRED) == []
    (noop,) = host.noops
    assert unnamed(noop, "restart pending", "2 containers", "disruption.allow", "nothing") == []


def test_the_merged_configuration_is_in_no_output() -> None:
    found = said("1.7.24", "", "password = 'hunter2'")
    assert "hunter2" not in json.dumps(found.to_json()) + repr(found)


def _script() -> str:
    """Return the transaction's script, which travels by standard input."""
    (command,) = containerd.configuration._inner(desired=DESIRED)
    return base64.b64decode(command.connector_arguments["_stdin"][0]).decode()
