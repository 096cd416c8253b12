"""CRI-O: what its files and its daemon say, what is to be done about it, and what of it cannot be asked for."""

from __future__ import annotations

import base64
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyinfra.context import ctx_host

from gpunode.base.comparison import BY_HAND
from gpunode.base.disruption import Disruption
from gpunode.base.findings import FindingClass
from gpunode.base.toml_edit import ConfigurationRefused, plain
from gpunode.base.versions import in_branch
from gpunode.components.crio.change import change
from gpunode.components.crio.decide import Desired, decide, decide_configuration
from gpunode.components.crio.drop_in import NVIDIA, Runtimes, render
from gpunode.components.crio.merged import Merged, merged
from gpunode.components.crio.state import Crio, parse_crio
from gpunode.facts.crio import Crio as CrioFact
from gpunode.facts.transaction import TransactionJournal
from gpunode.node.components import decisions
from gpunode.node.plan import plan
from gpunode.node.preflight import refusals
from gpunode.node.preflight.runtimes import crio_refusals
from gpunode.node.requirements import judge as requirements
from gpunode.node.verdict import judge
from gpunode.operations import crio
from gpunode.settings import SettingsError, settings_from
from gpunode.settings.cluster import default_runtime, needs_runtime_class
from gpunode.system.transaction import Journal
from tests.support.messages import unnamed
from tests.support.simulated_host import Host, commands
from tests.support.verify import DATA, GOOD

pytestmark = pytest.mark.pure
FOLDER = "/etc/crio/crio.conf.d"
PATH, EARLIER, LATER = (f"{FOLDER}/{name}" for name in ("99-nvidia.toml", "10-crio.conf", "99-other.conf"))
ROOT = "/etc/crio/crio.conf"
# As CRI-O's own packages have it: neither crun nor conmon is on the PATH.
PACKAGED = """[crio.runtime]
default_runtime = "crun"
[crio.runtime.runtimes.crun]
runtime_path = "/usr/libexec/crio/crun"
runtime_root = "/run/crun"
monitor_path = "/usr/libexec/crio/conmon"
"""
OWN = render(None, merged({EARLIER: PACKAGED}, ROOT), Runtimes())
SAYS = {
    "default_runtime": "nvidia",
    "cgroup_manager": "systemd",
    "runtimes": (("crun", "/usr/libexec/crio/crun"), ("nvidia", NVIDIA)),
}
RIGHT = Crio(
    "1.31.0",
    "/usr/bin/crio",
    files=((EARLIER, PACKAGED), (PATH, OWN)),
    active=True,
    enabled=True,
    default_runtime="nvidia",
    cgroup_manager="systemd",
    runtimes=SAYS["runtimes"],  # type: ignore[arg-type]
)
OTHERWISE = '[crio.runtime]\ndefault_runtime = "crun"\n'
ACTUAL = st.builds(
    lambda **changes: replace(RIGHT, **changes),
    version=st.sampled_from(["1.31.0", "1.31.0", "1.23.5", None]),
    files=st.sampled_from(
        [
            RIGHT.files,
            ((EARLIER, PACKAGED),),
            (),
            ((EARLIER, PACKAGED), (PATH, OWN), (f"{FOLDER}/zz.conf", OTHERWISE)),
            ((EARLIER, "["), (PATH, OWN)),
            ((PATH, "["),),
            None,
        ]
    ),
    default_runtime=st.sampled_from(["nvidia", "crun", None]),
    cgroup_manager=st.sampled_from(["systemd", "cgroupfs"]),
    runtimes=st.sampled_from([RIGHT.runtimes, RIGHT.runtimes[:1], ()]),
    active=st.booleans(),
    enabled=st.booleans(),
    masked=st.sampled_from([False, False, True]),
    containers=st.sampled_from([0, 2]),
    flags=st.sampled_from([(), (), ("--default-runtime",)]),
)
ALLOW = st.sampled_from(["nothing", "restart", "reboot"])


def lines(files: dict[str, str], **others: str) -> list[str]:
    found = [f"{key}={value}" for key, value in others.items()]
    return [*found, *(f"file={path} {base64.b64encode(text.encode()).decode()}" for path, text in files.items())]


def settings(allow: str = "restart", **values: Any) -> Any:
    return settings_from({**DATA, "crio": {"enabled": True, **values}, "disruption": {"allow": allow}})


def test_what_files_and_daemon_say_is_read_and_the_texts_are_in_no_output() -> None:
    running = base64.b64encode(
        b'[crio]\n[crio.runtime]\ndefault_runtime = "nvidia"\ncgroup_manager = "systemd"\n'
        b'[crio.runtime.runtimes.nvidia]\nruntime_path = "/opt/n"\n'
    ).decode()
    found = parse_crio(
        lines(
            {PATH: "secret = 1", ROOT: ""},
            crio="crio version 1.31.0",
            binary="/usr/bin/crio",
            ActiveState="active",
            UnitFileState="enabled",
            running=running,
            containers="3",
            flag="--cgroup-manager",
        )
    )
    assert (found.version, found.active, found.enabled, found.containers) == ("1.31.0", True, True, 3)
    assert (found.default_runtime, found.cgroup_manager, found.runtimes) == (
        "nvidia",
        "systemd",
        (("nvidia", "/opt/n"),),
    )
    assert found.files == ((ROOT, ""), (PATH, "secret = 1")) and found.flags == ("--cgroup-manager",)
    assert "secret" not in str(found.to_json()) + repr(found)
    assert parse_crio([]).version is None


@given(text=st.text(), said=st.text())
@example(text="", said="crio = 1")
@example(text="", said="crio.runtime = {default_runtime = 1, runtimes = {a = 1, b = {}}}")
def test_any_text_of_a_file_and_of_the_daemon_is_read(text: str, said: str) -> None:
    encoded = base64.b64encode(said.encode()).decode()
    found = parse_crio(
        lines({PATH: text, EARLIER: text}, crio="crio version 1.31.0", running=encoded, ActiveState="active")
    )
    assert found.version == "1.31.0" and dict(found.files or ()).keys() == {PATH, EARLIER}
    decide(Desired(Runtimes()), found)


def test_of_each_key_the_last_word_counts_and_of_each_runtime_the_last_table() -> None:
    root = '[crio.runtime]\ndefault_runtime = "root"\ncgroup_manager = "cgroupfs"\n'
    nested, last = f"{FOLDER}/99/z", f"{FOLDER}/99-own"
    own = '[crio.runtime.runtimes.crun]\nruntime_path = "/mine"\n'
    # What a folder holds counts before a longer name beside it, and any name counts.
    found = merged({last: own, nested: PACKAGED, ROOT: root, f"{FOLDER}/a~": "["}, ROOT)
    assert found.keys == {"default_runtime": "crun", "cgroup_manager": "cgroupfs"}
    assert found.runtimes == {"crun": {"runtime_path": "/mine"}}
    assert found.said_in == {"default_runtime": nested, "cgroup_manager": ROOT, "runtimes.crun": last}
    assert [item.startswith(f"{FOLDER}/a~: ") for item in found.unreadable] == [True]


def test_the_new_runtime_takes_over_where_conmon_is_and_what_the_file_says_otherwise_stays() -> None:
    runtime = plain(OWN)["crio"]["runtime"]
    assert runtime["runtimes"] == {
        "nvidia": {
            "runtime_root": "/run/crun",
            "monitor_path": "/usr/libexec/crio/conmon",
            "runtime_path": NVIDIA,
            "runtime_type": "oci",
        }
    }
    assert (runtime["default_runtime"], runtime["cgroup_manager"]) == ("nvidia", "systemd")
    written = "# mine\n" + OWN.replace("default_runtime", 'log_level = "debug" # why\ndefault_runtime').replace(
        "nvidia", "n"
    )
    again = render(written, merged({EARLIER: PACKAGED}, ROOT), Runtimes())
    assert (
        again.startswith("# mine\n") and 'log_level = "debug" # why' in again and "[crio.runtime.runtimes.n]" in again
    )
    assert render(OWN, Merged(), Runtimes()) == OWN
    off = plain(render(OWN, Merged(), Runtimes("crun", False, False)))["crio"]["runtime"]
    assert (off["default_runtime"], off["cgroup_manager"], off["conmon_cgroup"]) == ("crun", "cgroupfs", "pod")
    inherits = "[crio.runtime.runtimes.nvidia]\ninherit_default_runtime = true\n"
    assert plain(render(inherits, Merged(), Runtimes()))["crio"]["runtime"]["runtimes"]["nvidia"] == {
        "inherit_default_runtime": False,
        "runtime_path": NVIDIA,
        "runtime_type": "oci",
    }


def test_a_crio_that_is_right_is_left_alone(host: Host) -> None:
    assert change(RIGHT, Runtimes()) is None
    host.readings[CrioFact] = RIGHT
    asked = {"default_runtime": "nvidia", "systemd_cgroup": True, "nvidia": True, "restart_allowed": True}
    assert (commands(crio.configuration, host, **asked), host.refusals) == ([], [])
    (noop,) = host.noops
    assert unnamed(noop, "CRI-O", "nvidia") == []


@pytest.mark.parametrize(
    ("differs", "act", "writes"),
    [
        ({"default_runtime": "crun"}, "restart", False),
        ({"files": ((EARLIER, PACKAGED),)}, "nothing", True),
        ({"files": ((EARLIER, PACKAGED),), "runtimes": RIGHT.runtimes[:1]}, "restart", True),
        ({"files": ((EARLIER, PACKAGED),), "active": False, "default_runtime": None, "runtimes": ()}, "restart", True),
    ],
)
def test_a_daemon_that_runs_by_something_else_is_restarted_and_no_other(
    differs: dict[str, Any], act: str, writes: bool
) -> None:
    made = change(replace(RIGHT, **differs), Runtimes())
    assert made is not None and (made.act, bool(made.files)) == (act, writes)
    assert f"runtimes.nvidia.runtime_path={NVIDIA}" in made.expected
    assert made.staged == (OWN if writes else None)


@pytest.mark.parametrize(
    ("differs", "desired", "reason"),
    [
        (
            {"files": ((PATH, OWN), (f"{FOLDER}/zz", OTHERWISE))},
            Runtimes(),
            f"{FOLDER}/zz is read after {PATH} and says default_runtime = 'crun'; mend or remove that file",
        ),
        (
            {"files": ((EARLIER, "["),)},
            Runtimes(),
            f"CRI-O starts with none of its files: {EARLIER}: the file is not TOML",
        ),
        ({"files": ((PATH, "["),)}, Runtimes(), f"{PATH}: the file is not TOML"),
        ({"default_runtime": "crun", "flags": ("--default-runtime",)}, Runtimes(), "is started with --default-runtime"),
        ({}, Runtimes("runc"), "CRI-O knows no runtime runc, but crun, nvidia"),
    ],
)
def test_what_no_drop_in_mends_is_refused_with_the_file(
    differs: dict[str, Any], desired: Runtimes, reason: str
) -> None:
    with pytest.raises(ConfigurationRefused) as refused:
        change(replace(RIGHT, **differs), desired)
    assert reason in str(refused.value)
    decision = decide_configuration(Desired(desired), replace(RIGHT, **differs))
    assert decision.steps == () and decision.refusal == str(refused.value)
    assert any(item.remedy == BY_HAND for item in decision.findings)


@pytest.mark.parametrize("containers", [0, 2])
def test_a_restart_waits_where_containers_run_and_nothing_is_allowed(containers: int, host: Host) -> None:
    host.readings[CrioFact] = replace(RIGHT, default_runtime="crun", containers=containers)
    asked = {"default_runtime": "nvidia", "systemd_cgroup": True, "nvidia": True, "restart_allowed": False}
    assert (commands(crio.configuration, host, **asked) == []) is bool(containers)
    waits = "restart pending: 2 containers run and disruption.allow is nothing"
    assert host.noops == ([waits] if containers else [])


@given(actual=ACTUAL, allow=ALLOW, runtime=st.sampled_from(["nvidia", "crun"]), systemd=st.booleans())
def test_of_crio_drift_plan_verdict_and_run_say_the_same(actual: Crio, allow: str, runtime: str, systemd: bool) -> None:
    asked = settings(allow, default_runtime=runtime, systemd_cgroup=systemd, version="1.31")
    node = replace(GOOD, crio=actual)
    decision = decisions(asked, node)["crio"]
    bad = [item for item in judge(asked, node) if item.component == "crio" and item.finding_class != "ok"]
    settled = {item.what for step in decision.steps for item in step.settles}
    # Every difference is a step's, or says that a person is to mend it; what a step settles is a difference.
    assert settled <= {item.what for item in bad}
    assert all(item.what in settled or item.remedy == BY_HAND or item.actual == "masked" for item in bad)
    waiting = {item.what for item in bad if item.finding_class is FindingClass.RESTART_PENDING}
    made = next((step for step in decision.steps if not step.action.startswith("start")), None)
    assert waiting == ({item.what for item in made.settles} if made is not None and made.waits else set())
    if actual.version is None or not in_branch(actual.version, "1.31"):
        # Refused before anything is touched.
        assert not plan(asked, node).steps
    else:
        steps = [step for step in plan(asked, node).steps if step.component == "crio" and ": " not in step.action]
        assert [(step.action, step.pending) for step in steps] == [
            (step.action, step.waits is not None) for step in decision.steps
        ]
    if actual.files is None:
        return
    host = Host({CrioFact: actual, TransactionJournal: Journal(None, None, None, False)})
    with ctx_host.use(host):
        given_commands = commands(
            crio.configuration,
            host,
            default_runtime=runtime,
            systemd_cgroup=systemd,
            nvidia=True,
            restart_allowed=allow != "nothing",
        )
    assert host.refusals == ([decision.refusal] if decision.refusal else [])
    assert (given_commands != []) == (made is not None and made.change is not None and made.waits is None)


@given(actual=ACTUAL, runtime=st.sampled_from(["nvidia", "crun"]), systemd=st.booleans())
def test_the_steps_carried_out_leave_none(actual: Crio, runtime: str, systemd: bool) -> None:
    desired = Desired(Runtimes(runtime, systemd), Disruption.reboot)
    decision = decide(desired, actual)
    if decision.refusal is not None or actual.files is None:
        assert all(step.waits is not None for step in decision.steps) or actual.files is None
        return
    after = actual
    for step in decision.steps:
        if step.change is not None and step.change.files:
            (written,) = step.change.files
            after = replace(after, files=tuple({**dict(after.files or ()), written.path: str(written.text)}.items()))
        if step.action == "start it at boot":
            after = replace(after, enabled=True)
        elif step.change is None or step.change.act == "restart":
            after = replace(
                after,
                active=True,
                default_runtime=runtime,
                cgroup_manager=desired.runtimes.manager,
                runtimes=RIGHT.runtimes,
            )
    assert [step for step in decide(desired, after).steps if step.waits is None] == []


def test_drift_plan_and_preflight_tell_of_a_crio_that_is_not_there() -> None:
    (version,) = (item for item in judge(settings(), GOOD) if item.component == "crio" and item.what == "version")
    assert (version.code, version.actual, version.by_person) == ("crio.version", "none", True)
    assert unnamed(version.cause, "CRI-O", "crio.enabled") == []
    (refusal,) = refusals(settings(), GOOD.machine)
    assert (refusal.component, refusal.remedy.split(",")[1]) == ("crio", " or set crio.enabled = False")
    assert refusals(settings(), replace(GOOD, crio=RIGHT).machine) == ()
    assert refusals(settings_from(DATA), GOOD.machine) == ()
    old = decide(Desired(Runtimes(), version="1.30"), RIGHT).findings[0]
    assert (old.code, old.actual, old.desired) == ("crio.version", RIGHT.version, "1.30")
    assert old.by_person and unnamed(old.cause, "crio.version", "1.30") == []
    old = decide(Desired(Runtimes()), replace(RIGHT, version="1.23.5")).findings[0]
    assert (old.code, old.actual) == ("crio.version", "1.23.5") and unnamed(old.cause, "1.24.0", "CDI") == []


def test_the_device_plugin_and_the_requirements_know_its_default_runtime() -> None:
    asked = {**DATA, "containerd": {"enabled": False}, "crio": {"enabled": True, "default_runtime": "crun"}}
    assert default_runtime(settings_from(asked)) == "crun" and needs_runtime_class(settings_from(asked))
    node = replace(GOOD, crio=RIGHT, containerd=replace(GOOD.containerd, version=None, default_runtime=None))
    told = {item.component: item.actual for item in requirements(node).requirements}
    assert told["default-runtime"] == "nvidia"


_ALONE = {"containerd": {"enabled": False}}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"crio": {"source": "distribution"}}, "not allowed"),
        ({"crio": {"version": "1.23"}}, "knows no CDI; 1.24.0 is the first that does"),
        ({"crio": {"enabled": True}, "toolkit": {"enabled": False}, **_ALONE}, "needs the nvidia runtime"),
        ({"crio": {"enabled": True}, "kubernetes": {"enabled": True}}, "set containerd.enabled = False"),
        ({"crio": {"enabled": True}, "verify": {"smoke": True}, **_ALONE}, "leaves verify.smoke nothing"),
    ],
)
def test_what_crio_cannot_have_is_refused(data: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        settings_from({**DATA, **data})


def test_a_simulated_crio_says_so() -> None:
    folder = Path(__file__).parents[2] / "lab" / "packages"
    assert "SIMULATED" in (folder / "crio.py").read_text() and "SIMULATED" in (folder / "crio.service").read_text()


@pytest.mark.parametrize(
    ("actual", "version", "says"),
    [("1.20.0", None, "is the first with CDI"), ("1.20.0", "1.31", "crio.version is 1.31"), (None, None, "no CRI-O")],
)
def test_a_crio_that_is_not_what_it_has_to_be_is_refused_before_it_is_touched(
    actual: str | None, version: str | None, says: str
) -> None:
    asked = settings("restart", **({"version": version} if version else {}))
    (refusal,) = crio_refusals(asked, replace(GOOD, crio=replace(RIGHT, version=actual)))
    assert says in refusal.reason and refusal.remedy
    assert not list(crio_refusals(asked, replace(GOOD, crio=replace(RIGHT, version="1.31.2"))))
