"""What the operation on MIG layouts decides, by readings that are SIMULATED."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from pyinfra.api import StringCommand

from gpunode.base.shell_file import script_file
from gpunode.components.mig import decide
from gpunode.components.mig.boot import MigBoot
from gpunode.components.mig.state import DISABLED, ENABLED, Holder, Mig, MigGpu
from gpunode.components.runtimes.crio.state import Crio
from gpunode.components.runtimes.docker.state import Docker
from gpunode.facts.gpu import Mig as MigFact
from gpunode.facts.gpu import MigBoot as MigBootFact
from gpunode.facts.runtimes import Containerd as ContainerdFact
from gpunode.facts.runtimes import Crio as CrioFact
from gpunode.facts.runtimes import Docker as DockerFact
from gpunode.facts.transaction import TransactionJournal
from gpunode.fleet import plan_cluster
from gpunode.kubernetes.device_plugin.cluster import Cluster
from gpunode.operations import mig as operation
from gpunode.settings import settings_from
from gpunode.settings.mig import MigSettings
from gpunode.system.running_boot import RECORD as REBOOTS
from gpunode.system.transaction import Journal
from tests.support import mig_in_cluster
from tests.support.messages import unnamed
from tests.support.mig_target import DECLARATION, FILES, H100, MIXED, OWN, RECORD, boot_of, gpu, node_with
from tests.support.simulated_host import Host, commands
from tests.support.verify import GOOD

pytestmark = [pytest.mark.pure, pytest.mark.simulated]
SETTLED = boot_of(RECORD)


class Ask:
    """Ask the operation for a configuration on a host with one GPU."""

    def __init__(self, folder: Path, patched: pytest.MonkeyPatch) -> None:
        (folder / "mig.yaml").write_text(DECLARATION)
        self.file, self.patched, self.host = str(folder / "mig.yaml"), patched, Host({})

    def settings(self, config: str | None = "mixed", by_label: bool = False) -> MigSettings:
        asked = settings_from({"mig": {"config": config, "file": self.file} if config else {}}).mig
        return asked.model_copy(update={"config_from_label": by_label})

    def __call__(
        self, *gpus: MigGpu, boot: MigBoot = SETTLED, shims: int = 0, allowed: str = "restart",
        journal: Journal | None = None, config: str | None = "mixed", by_label: bool = False,
        holders: tuple[Holder, ...] = (),
    ) -> list[str]:  # fmt: skip
        self.host = Host({
            TransactionJournal: journal or Journal(None, None, None, False), MigFact: Mig("ok", None, gpus, holders),
            MigBootFact: boot, ContainerdFact: replace(GOOD.containerd, shims=shims), DockerFact: Docker(None),
            CrioFact: Crio(),
        })  # fmt: skip
        self.patched.setattr(operation, "host", self.host)
        self.patched.setattr("gpunode.operations.control_plane.host", self.host)
        self.patched.setattr("gpunode.operations.transaction.host", self.host)
        self.patched.setattr("gpunode.operations.failure.host", self.host)
        self.patched.setattr(operation, "driver_state", lambda: GOOD.driver)
        settings = self.settings(config, by_label)
        return commands(operation.layout, self.host, settings=settings, gpus=(H100,), allowed=allowed)


@pytest.fixture
def ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ask:
    return Ask(tmp_path, monkeypatch)


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


def test_a_target_that_was_proven_not_to_work_is_not_tried_again(ask: Ask) -> None:
    seen: list[tuple[str, ...]] = []

    def digest(*parts: str) -> str:
        seen.append(parts)
        return "digest"

    ask.patched.setattr(decide, "target_digest", digest)
    failed = Journal("failed", "digest", "GPU 0 refuses 3g.40gb:4", False)
    assert ask(gpu(0, DISABLED), journal=failed) == []
    assert unnamed(ask.host.refusals[0], "tried before", "GPU 0 refuses 3g.40gb:4") == []
    assert set(seen) == {("GPU-0 Enabled 1g.10gb=1 1g.10gb=1 2g.20gb=2 3g.40gb=3", "nvidia-persistenced.service",
                     "nvidia-dcgm.service", "nvidia-dcgm-exporter.service", "restart")}  # fmt: skip


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


@pytest.mark.parametrize("lacks", [None, "3g.40gb"])
def test_where_nobody_knows_the_places_the_mode_comes_first_and_the_instances_by_the_gpu_s_own_list(
    ask: Ask, monkeypatch: pytest.MonkeyPatch, lacks: str | None
) -> None:
    seen: list[str] = []
    turned_on = Mig("ok", None, (gpu(0, ENABLED, profiles=tuple(each for each in OWN if each.name != lacks)),))

    def transaction_command(_: object, __: str, **variables: str) -> StringCommand:
        seen.append(variables["goal"])
        ask.host.readings[MigFact] = turned_on
        return StringCommand("true")

    monkeypatch.setattr(operation, "transaction_command", transaction_command)
    monkeypatch.setattr("gpunode.components.mig.target.product_geometry", lambda _: None)
    ask(gpu(0, DISABLED))
    if lacks is None:
        assert (seen, ask.host.refusals) == (["GPU-0 on", RECORD], [])
        return
    # It is told with what was done to find out; the next run knows it before.
    (said,) = ask.host.refusals
    assert seen == ["GPU-0 on"] and unnamed(said, "GPU 0", f"no profile {lacks}", "(GPU 0: turn MIG on") == []
    assert ask(*turned_on.gpus) == [] and unnamed(ask.host.refusals[0], "MIG on") == ["MIG on"]


@pytest.mark.parametrize(
    ("holds", "why", "named"),
    [
        ("", "GPU 0 refuses a reset (exit code 19)", ["nvidia-fabricmanager.service", "systemctl stop"]),
        ("4615", "GPU 0 refuses a reset (exit code 19)", []),
        ("", "GPU 0 does not answer", []),
    ],
)
def test_a_refused_reset_names_what_may_hold_a_gpu_that_no_process_is_seen_on(
    holds: str, why: str, named: list[str]
) -> None:
    text = (
        script_file("mig")
        + f"""
    holders() {{ echo {holds}; }}
    systemctl() {{ [ "$3" = nvidia-fabricmanager.service ]; }}
    blame=''; why='{why}'; gave_up
    """
    )
    done = subprocess.run(["sh", "-c", text], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and ("nvidia-fabricmanager" in done.stderr) is bool(named)
    assert unnamed(done.stderr, *named) == []


def test_a_process_on_the_gpu_refuses_the_change_before_anything_is_begun(ask: Ask) -> None:
    holder = Holder("GPU-0", 4615, "trainer", "root", unit="trainer.service")
    assert ask(gpu(0, DISABLED), holders=(holder,)) == []
    assert unnamed(ask.host.refusals[0], "4615", "trainer.service", "mig.stop_units", "nothing was changed") == []


@pytest.mark.parametrize("by_discovery", [True, False])
def test_the_plan_names_the_daemonset_by_which_the_run_refuses_the_change(by_discovery: bool) -> None:
    there = mig_in_cluster.Cluster(mig_in_cluster.ASKED, mig_in_cluster.PLUGIN)
    there.labels |= {"feature.node.kubernetes.io/pci-10de.present": "true"} if by_discovery else {}
    holder = Holder("GPU-0", 7, "p", "root", container=mig_in_cluster.container("nvdp-x")[:12], in_pod=True)
    off = gpu(0, DISABLED)
    node = replace(node_with(off, boot=MigBoot()), mig=Mig("ok", None, (off,), (holder,)))
    cluster = Cluster(mig_in_cluster.ASKED.kubernetes, mig_in_cluster.ASKED.proxy, there)
    rows = list(plan_cluster._stays(mig_in_cluster.ASKED, node, "gpu-1", cluster))
    assert [row.fails for row in rows] == [True] * by_discovery
    assert all(unnamed(str(row.cause), "plugin/nvdp", "nvidia.com/gpu.present") == [] for row in rows)
    # The pod of no DaemonSet leaves by a drain alone.
    there.pods.append("job-1")
    whys = [cluster.why_pods_stay("gpu-1", [mig_in_cluster.container("job-1")], drains) for drains in (True, False)]
    assert whys[0] is None and unnamed(str(whys[1]), "plugin/job-1") == []
