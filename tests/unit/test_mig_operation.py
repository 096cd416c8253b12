"""What the operation on MIG layouts decides, by readings that are SIMULATED."""

from __future__ import annotations

import base64
import hashlib
import subprocess
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyinfra.api import StringCommand

from gpunode.base.disruption import Disruption
from gpunode.base.findings import FindingClass
from gpunode.base.reading import Unknown
from gpunode.components.crio.state import Crio
from gpunode.components.docker.state import Docker
from gpunode.components.mig.boot import SCRIPT, UNIT, MigBoot, parse_mig_boot
from gpunode.components.mig.files import desired_files
from gpunode.components.mig.state import DISABLED, ENABLED, Mig, MigGpu
from gpunode.facts.containerd import Containerd as ContainerdFact
from gpunode.facts.crio import Crio as CrioFact
from gpunode.facts.docker import Docker as DockerFact
from gpunode.facts.mig import Mig as MigFact
from gpunode.facts.mig_boot import MigBoot as MigBootFact
from gpunode.facts.transaction import TransactionJournal
from gpunode.node.reboot import RECORD as REBOOTS
from gpunode.operations import mig as operation
from gpunode.settings import settings_from
from gpunode.system.transaction import Journal
from tests.support.messages import unnamed
from tests.support.mig_target import DECLARATION, H100, MIXED, OWN, RECORD, gpu, judged
from tests.support.simulated_host import Host, commands
from tests.support.verify import GOOD

pytestmark = [pytest.mark.pure, pytest.mark.simulated]
FILES = tuple((path, hashlib.sha256(text.encode()).hexdigest()) for path, text in desired_files().items())
SETTLED = MigBoot(FILES, (RECORD,), enabled=True)


class Ask:
    """Ask the operation for a configuration on a host with one GPU."""

    def __init__(self, folder: Path, patched: pytest.MonkeyPatch) -> None:
        (folder / "mig.yaml").write_text(DECLARATION)
        self.file = str(folder / "mig.yaml")
        self.patched = patched
        self.host = Host({})

    def __call__(
        self, *gpus: MigGpu, boot: MigBoot = SETTLED, shims: int = 0, allowed: str = "restart",
        journal: Journal | None = None, executing: bool = True, config: str | None = "mixed", by_label: bool = False,
        **readings: Any,
    ) -> list[str]:  # fmt: skip
        data = {"config": config, "file": self.file} if config else {}
        self.host = Host(
            {
                TransactionJournal: journal or Journal(None, None, None, False),
                MigFact: readings.get("mig", Mig("ok", None, gpus)),
                MigBootFact: boot,
                ContainerdFact: replace(GOOD.containerd, shims=shims),
                DockerFact: Docker(None),
                CrioFact: Crio(),
            },
            state=SimpleNamespace(is_executing=executing),
        )
        self.patched.setattr(operation, "host", self.host)
        self.patched.setattr("gpunode.operations.transaction.host", self.host)
        self.patched.setattr(operation, "driver_state", lambda: readings.get("driver", GOOD.driver))
        asked = settings_from({"mig": data}).mig.model_copy(update={"config_from_label": by_label})
        return commands(operation.layout, self.host, settings=asked, gpus=(H100,), allowed=allowed)


@pytest.fixture
def ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ask:
    return Ask(tmp_path, monkeypatch)


def test_a_gpu_that_is_as_asked_is_left_alone_and_said_to_be(ask: Ask) -> None:
    assert ask(gpu(0, ENABLED, *MIXED)) == []
    assert ask.host.noops == ["MIG: 1 GPU(s) as desired"]


@pytest.mark.parametrize(
    "boot",
    [
        MigBoot(),
        replace(SETTLED, record=None),
        replace(SETTLED, enabled=False),
        replace(SETTLED, failed=True),
        replace(SETTLED, files=FILES[:1]),
    ],
)
def test_what_would_not_come_back_after_a_boot_is_mended_without_touching_an_instance(ask: Ask, boot: MigBoot) -> None:
    (command,) = ask(gpu(0, ENABLED, *MIXED), boot=boot)
    assert "systemd-run" in command


def test_a_difference_is_one_transaction(ask: Ask) -> None:
    (command,) = ask(gpu(0, DISABLED))
    assert "name=mig" in command


def test_each_file_that_is_to_change_is_told_with_what_was_read_of_it(ask: Ask) -> None:
    (command,) = ask(gpu(0, DISABLED), boot=replace(SETTLED, record_digest="1" * 64))
    script = base64.b64decode(command.rpartition("<<< ")[2]).decode()
    (unit, first), (second_path, second) = FILES
    assert unit == UNIT and second_path == SCRIPT
    assert f"\nunit_read={first}\nscript_read={second}\nrecord_read={'1' * 64}\n" in script
    (command,) = ask(gpu(0, DISABLED), boot=MigBoot())
    script = base64.b64decode(command.rpartition("<<< ")[2]).decode()
    assert "\nunit_read=none\nscript_read=none\nrecord_read=none\n" in script
    (command,) = ask(gpu(0, DISABLED), boot=replace(MigBoot(), readable=False))
    assert "\nrecord_read=unread\n" in base64.b64decode(command.rpartition("<<< ")[2]).decode()


def test_what_takes_from_containers_waits_until_the_settings_allow_it(ask: Ask) -> None:
    there = gpu(0, ENABLED, "3g.40gb:4", "2g.20gb:0", "2g.20gb:2")
    assert ask(there, shims=1) == []
    assert ask.host.noops[0].startswith(
        "reset pending: containers run, and disruption.allow is restart (GPU 0: destroy"
    )
    assert len(ask(there, shims=1, allowed="reset")) == 1
    assert len(ask(there, shims=0)) == 1
    assert len(ask(gpu(0, ENABLED, "3g.40gb:4"), shims=1)) == 1, "what only comes disturbs nobody"


def test_while_a_layout_waits_the_record_names_no_file_that_is_not_there_yet(ask: Ask) -> None:
    there = gpu(0, ENABLED, "3g.40gb:4", "2g.20gb:0", "2g.20gb:2")
    for boot, expected in ((MigBoot(), set()), (SETTLED, {path for path, _ in FILES})):
        kept_of: dict[str, str] = {}
        ask.patched.setattr("gpunode.operations.own_files.keeps", kept_of.__setitem__)
        assert ask(there, shims=1, boot=boot) == []
        assert set(kept_of) == expected
    ask(there, shims=0, boot=MigBoot())
    assert set(kept_of) == {path for path, _ in FILES}


def test_a_mode_that_waits_for_a_boot_gets_one_where_that_is_allowed(ask: Ask) -> None:
    boots: list[str] = []

    def new_boot(purpose: str, timeout: int, drain: None) -> tuple[()]:
        boots.append(purpose)
        return ()

    ask.patched.setattr(operation, "new_boot", new_boot)
    waiting = gpu(0, DISABLED, pending=ENABLED)
    ask(waiting, allowed="reset")
    assert boots == []
    ask(waiting, allowed="reboot")
    assert len(boots) == 1 and boots[0].startswith("mig/")
    assert unnamed(ask.host.refusals[0], "rebooted", "GPU 0: turn MIG on") == []
    ask(gpu(0, ENABLED, *MIXED), allowed="reboot")
    assert len(boots) == 1


def test_the_record_of_a_boot_that_brought_the_mode_goes_with_the_next_run(ask: Ask) -> None:
    there = gpu(0, ENABLED, *MIXED)
    (command,) = ask(there, boot=replace(SETTLED, booted_for="mig/0123"))
    assert "rm -f" in command and REBOOTS in command
    assert ask(there, boot=replace(SETTLED, booted_for="580.95.05/open")) == []
    # What still waits was not helped by it.
    assert ask(gpu(0, DISABLED, pending=ENABLED), boot=replace(SETTLED, booted_for="mig/0123"))[0].count(REBOOTS) == 0
    assert parse_mig_boot(["active=active", "attempt=mig/0123 aaaa 5000000"]).booted_for == "mig/0123"


def test_a_target_that_was_proven_not_to_work_is_not_tried_again(ask: Ask) -> None:
    seen: list[tuple[str, ...]] = []

    def digest(*parts: str) -> str:
        seen.append(parts)
        return "digest"

    ask.patched.setattr(operation, "target_digest", digest)
    failed = Journal("failed", "digest", "GPU 0 refuses 3g.40gb:4", False)
    assert ask(gpu(0, DISABLED), journal=failed) == []
    assert unnamed(ask.host.refusals[0], "tried before", "GPU 0 refuses 3g.40gb:4") == []
    assert seen == [("GPU-0 Enabled 1g.10gb=1 1g.10gb=1 2g.20gb=2 3g.40gb=3", "nvidia-persistenced.service",
                     "nvidia-dcgm.service", "nvidia-dcgm-exporter.service", "restart")]  # fmt: skip


def test_an_interrupted_transaction_is_undone_first(ask: Ask) -> None:
    first, second = ask(gpu(0, DISABLED), journal=Journal("began", "x", None, False))
    assert "undo" in first and "systemd-run" in second


def test_what_cannot_be_put_back_holds_nobody_up_who_asks_for_no_layout_any_more(ask: Ask, tmp_path: Path) -> None:
    interrupted = Journal("began", "x", None, False)
    first, second = ask(gpu(0, DISABLED), config=None, journal=interrupted)
    assert "systemctl disable" in second
    (tmp_path / "mig.sh").write_text("echo 'GPU 1 differs' >&2; exit 1\n")
    (tmp_path / "mig.json").write_text('{"schema": 1, "state": "began", "target": "x", "reason": ""}\n')
    # SIMULATED: it runs what it is told.
    (tmp_path / "systemd-run").write_text('#!/bin/sh\nwhile [ "$1" != /bin/sh ]; do shift; done\nexec "$@"\n')
    (tmp_path / "systemd-run").chmod(0o755)
    done = subprocess.run(
        ["sh", "-c", first.replace("/var/lib/gpunode/transactions", str(tmp_path))],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0 and "GPU 1 differs" in done.stdout and done.stderr
    assert not (tmp_path / "mig.json").exists() and (tmp_path / "mig.given-up.json").exists()
    # With a configuration it is not given up.
    assert "given-up" not in ask(gpu(0, DISABLED), journal=interrupted)[0]
    assert "given-up" not in ask(gpu(0, DISABLED), config=None, by_label=True, journal=interrupted)[0]


@pytest.mark.parametrize("state", [Unknown(), Mig("hangs", None), Mig("ok", None, ())])
def test_nothing_is_done_about_gpus_that_are_not_known(ask: Ask, state: Any) -> None:
    assert ask(mig=state) == []
    assert "nothing was changed" in ask.host.refusals[0]


def test_a_forecast_of_a_node_whose_driver_is_to_come_is_a_change_and_no_refusal(ask: Ask) -> None:
    assert ask(mig=Mig("absent"), executing=False) == ["true"] and ask.host.refusals == []
    assert ask(mig=Mig("absent")) == [] and "absent" in ask.host.refusals[0]


def test_instances_wait_for_the_boot_that_another_driver_waits_for(ask: Ask) -> None:
    newer = replace(GOOD.driver, module_version="590.48.01")
    assert newer.reboot_pending and not GOOD.driver.reboot_pending
    assert ask(mig=Mig("mismatch"), driver=newer) == [] and ask.host.refusals == []
    assert ask(mig=Mig("mismatch")) == [] and "mismatch" in ask.host.refusals[0]
    asked = settings_from({"mig": {"config": "mixed", "file": ask.file}})
    (found,) = judged(asked, replace(GOOD, mig=Mig("mismatch"), driver=newer))
    assert (found.finding_class, found.disruption) == (FindingClass.REBOOT_PENDING, Disruption.reboot)
    (found,) = judged(asked, replace(GOOD, mig=Mig("mismatch")))
    assert found.finding_class is FindingClass.DRIFT


def test_without_a_configuration_what_gpunode_set_up_goes_and_no_instance(ask: Ask) -> None:
    (command,) = ask(gpu(0, ENABLED, *MIXED), config=None)
    assert "systemctl disable" in command and "nvidia-smi" not in command
    assert ask(gpu(0, ENABLED, *MIXED), config=None, boot=MigBoot()) == []
    assert len(ask.host.noops) == 1 and not ask.host.refusals


def test_a_node_that_lost_its_label_loses_no_layout_and_what_its_label_names_is_applied(ask: Ask) -> None:
    assert ask(gpu(0, ENABLED, *MIXED), config=None, by_label=True) == []
    assert len(ask.host.noops) == 1 and unnamed(ask.host.noops[0], "label nvidia.com/mig.config") == []
    assert len(ask(gpu(0, DISABLED), by_label=True)) == 1


def test_a_name_that_the_shell_would_take_for_something_else_goes_nowhere_near_it(ask: Ask) -> None:
    assert ask(gpu(0, DISABLED, uuid="GPU-0 $(reboot)")) == []
    assert len(ask.host.refusals) == 1 and unnamed(ask.host.refusals[0], "'GPU-0 $(reboot)") == []


def test_where_nobody_knows_the_places_the_mode_comes_first_and_the_instances_by_the_gpu_s_own_list(
    ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    def transaction_command(_: object, __: str, **variables: str) -> StringCommand:
        seen.append(variables["goal"])
        turned_on = Mig("ok", None, (gpu(0, ENABLED),))
        ask.host.readings[MigFact] = turned_on
        return StringCommand("true")

    ask(gpu(0, ENABLED, *MIXED))
    monkeypatch.setattr(operation, "transaction_command", transaction_command)
    monkeypatch.setattr("gpunode.components.mig.target.product_geometry", lambda _: None)
    ask.host.readings[MigFact] = Mig("ok", None, (gpu(0, DISABLED),))
    asked = settings_from({"mig": {"config": "mixed", "file": ask.file}}).mig
    for _ in operation.layout._inner(settings=asked, gpus=(H100,), allowed="restart"):
        pass
    assert seen == ["GPU-0 on", RECORD]


def test_a_layout_that_the_gpu_s_own_list_has_no_place_for_is_refused_with_what_was_done_to_find_out(
    ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    lacking = tuple(each for each in OWN if each.name != "3g.40gb")
    without = Mig("ok", None, (gpu(0, ENABLED, profiles=lacking),))

    def transaction_command(*_: object, **__: str) -> StringCommand:
        ask.host.readings[MigFact] = without
        return StringCommand("true")

    monkeypatch.setattr(operation, "transaction_command", transaction_command)
    monkeypatch.setattr("gpunode.components.mig.target.product_geometry", lambda _: None)
    ask(gpu(0, DISABLED))
    (said,) = ask.host.refusals
    assert unnamed(said, "GPU 0", "no profile 3g.40gb", "(GPU 0: turn MIG on") == []
    assert "nothing was changed" not in said
    # The next run knows it before.
    assert ask(mig=without) == [] and ask.host.refusals[0].endswith("; nothing was changed")
