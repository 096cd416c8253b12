"""podman: what its files of settings say, and what is to be done about it."""

from __future__ import annotations

import base64
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpunode.base.comparison import BY_HAND
from gpunode.base.findings import FindingClass
from gpunode.components.podman.decide import Desired, decide, desired_of, lacks
from gpunode.components.podman.drop_in import NVIDIA, PATH
from gpunode.components.podman.state import Podman, parse_podman
from gpunode.node.components import desired_files
from gpunode.node.plan import plan
from gpunode.node.preflight import cautions, refusals
from gpunode.node.verdict import judge
from gpunode.settings import SettingsError, settings_from
from tests.support.messages import unnamed
from tests.support.verify import DATA, GOOD

pytestmark = pytest.mark.pure

ASKED = {**DATA, "toolkit": {"version": "1.17.8", "cdi": "generate"}}
THERE = Podman("4.3.1")
NVIDIAS = replace(THERE, default_runtime="nvidia", said_in=PATH, runtimes=(("nvidia", (NVIDIA,)),))
OF_PACKAGE = "/usr/share/containers/containers.conf"
OTHER = "/etc/containers/containers.conf.d/99-other.conf"


def settings(**podman: Any) -> Any:
    return settings_from({**ASKED, "podman": {"enabled": True, **podman}})


def lines(version: str | None, **files: str) -> list[str]:
    encoded = [f"file={path} {base64.b64encode(text.encode()).decode()}" for path, text in files.items()]
    return [*([f"podman=podman version {version}"] if version else []), *encoded]


def test_the_last_file_that_names_a_runtime_counts_and_runtimes_add_up() -> None:
    first, last = (
        '[engine]\nruntime = "crun"\n[engine.runtimes]\nmine = ["/opt/mine"]\n',
        "[containers]\nlog_size = 1\n",
    )
    own = f'[engine]\nruntime = "nvidia"\n[engine.runtimes]\nnvidia = ["{NVIDIA}"]\n'
    found = parse_podman(lines("4.3.1", **{"/usr/a.conf": first, PATH: own, OTHER: last}))
    assert (found.version, found.default_runtime, found.said_in) == ("4.3.1", "nvidia", PATH)
    assert found.runtimes == (("mine", ("/opt/mine",)), ("nvidia", (NVIDIA,)))
    assert found.runtimes_in == (("mine", "/usr/a.conf"), ("nvidia", PATH))
    assert parse_podman([]) == Podman()


@given(text=st.text())
def test_a_file_of_any_text_is_read_or_named_as_unreadable(text: str) -> None:
    found = parse_podman(lines("5.4.2", **{PATH: text}))
    assert found.version == "5.4.2"
    assert all(item.startswith(f"{PATH}: ") for item in found.unreadable)


@given(
    actual=st.builds(
        Podman,
        version=st.sampled_from([None, "3.4.4", "4.3.1", "4.9.3", "5.1.0", "5.4.2"]),
        default_runtime=st.sampled_from([None, "nvidia", "crun"]),
        said_in=st.sampled_from([None, OF_PACKAGE, "/etc/containers/containers.conf", PATH, OTHER]),
        runtimes=st.sampled_from([(), (("nvidia", (NVIDIA,)),), (("nvidia", ("/opt/other",)),)]),
        runtimes_in=st.sampled_from([(), (("nvidia", OF_PACKAGE),), (("nvidia", PATH),), (("nvidia", OTHER),)]),
        unreadable=st.sampled_from([(), (f"{OTHER}: Invalid value",)]),
        programs=st.sampled_from([(), ("crun",), ("runc",)]),
    ),
    toolkit=st.sampled_from([None, "1.17.8", "1.19.1"]),
    version=st.sampled_from([None, "4.3", "5.4"]),
    runtime=st.sampled_from([None, "nvidia", "crun"]),
    installs=st.booleans(),
)
def test_every_difference_is_a_step_s_or_a_person_s_and_the_steps_remove_the_rest(
    actual: Podman, toolkit: str | None, version: str | None, runtime: str | None, installs: bool
) -> None:
    desired = Desired(version, runtime, installs, runtime if runtime == "crun" else None)
    decision = decide(desired, actual, toolkit)
    bad = {item.what: item for item in decision.findings if item.finding_class is not FindingClass.OK}
    settled = {item.what for step in decision.steps for item in step.settles}
    assert settled <= set(bad)
    assert all(bad[what].remedy == BY_HAND for what in set(bad) - settled)
    # Carried out: the package comes, and the drop-in is read.
    after = actual
    for step in decision.steps:
        if step.action == "install podman":
            after = replace(after, version={None: "4.3.1", "4.3": "4.3.1", "5.4": "5.4.2"}[version])
        elif step.action == "install crun":
            after = replace(after, programs=("crun",))
        else:
            # What another file says later stays as it is.
            nvidia = after.runtimes if dict(after.runtimes_in).get("nvidia") == OTHER else (("nvidia", (NVIDIA,)),)
            after = replace(after, default_runtime=runtime, said_in=PATH, runtimes=nvidia)
    assert decide(desired, after, toolkit).steps == ()


def test_drift_and_plan_tell_of_podman_what_the_decision_says() -> None:
    asked = settings(default_runtime="nvidia")
    node = replace(GOOD, podman=Podman())
    bad = {item.what for item in judge(asked, node) if item.component == "podman" and item.finding_class != "ok"}
    assert {"version", "default runtime"} <= bad
    steps = [step for step in plan(asked, node).steps if step.component == "podman"]
    assert [(step.code, step.actual, step.desired) for step in steps[-2:]] == [
        ("podman.version", "none", "any version"), ("podman.default-runtime", "none", "nvidia"),
    ]  # fmt: skip
    files = desired_files(asked, node.machine)
    assert files[PATH] is not None and f'nvidia = ["{NVIDIA}"]' in str(files[PATH])
    assert desired_files(settings(), node.machine)[PATH] is None
    assert PATH not in desired_files(settings_from(ASKED), node.machine)


@pytest.mark.parametrize(
    ("version", "toolkit", "cause"),
    [
        ("3.4.4", "1.17.8", "podman 3.4.4 knows no CDI"),
        ("4.9.3", "1.19.1", "podman 4.9.3 cannot read CDI specifications of toolkit 1.19.1 and newer"),
        ("4.9.3", "1.19.0", None),
        ("5.1.0", "1.20.0", None),
    ],
)
def test_a_podman_that_cannot_read_the_specification_is_said_with_what_can(
    version: str, toolkit: str, cause: str | None
) -> None:
    told = [item.cause for item in decide(Desired(), Podman(version), toolkit).findings if item.cause]
    assert [text.startswith(cause) for text in told if cause] == ([True] if cause else [])


def test_another_file_that_is_read_later_is_named() -> None:
    decision = decide(Desired(None, "nvidia"), replace(THERE, default_runtime="crun", said_in=OTHER), "1.17.8")
    assert decision.steps == ()
    assert [item.cause for item in decision.findings if item.cause] == [f"{OTHER} is read after {PATH} and says crun"]
    assert decide(Desired(None, "nvidia"), NVIDIAS, "1.17.8").steps == ()
    moved = replace(NVIDIAS, runtimes=(("nvidia", ("/opt/other",)),), runtimes_in=(("nvidia", OTHER),))
    (cause,) = (item.cause for item in decide(Desired(None, "nvidia"), moved, "1.17.8").findings if item.cause)
    assert unnamed(cause, OTHER, PATH, "nvidia", "/opt/other") == []


def test_what_the_distribution_s_file_names_is_overruled_by_the_drop_in() -> None:
    decision = decide(Desired(None, "nvidia"), replace(THERE, default_runtime="crun", said_in=OF_PACKAGE), "1.17.8")
    (item,) = (item for step in decision.steps for item in step.settles)
    assert (item.code, item.actual, item.desired) == ("podman.default-runtime", "crun", "nvidia")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"podman": {"enabled": True}, "toolkit": {"cdi": "off"}}, "set toolkit.cdi = 'generate' with it"),
        (
            {"podman": {"enabled": True}, "toolkit": {"enabled": False}, "containerd": {"enabled": False}},
            "needs the NVIDIA container toolkit",
        ),
        ({"podman": {"source": "present", "version": "4.3"}}, "leave one of the two out"),
        ({"podman": {"version": "3.4"}}, "knows no CDI"),
    ],
)
def test_podman_without_a_specification_is_refused(data: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        settings_from({**DATA, **data})


@pytest.mark.parametrize(
    ("system", "asked", "there", "refused", "told"),
    [
        (("ubuntu", "22.04"), {}, None, "podman 3.4.4 of Ubuntu 22.04's archive knows no CDI", None),
        (("ubuntu", "22.04"), {"version": "4.9"}, None, None, "has podman 3.4.4, and 4.9 is asked for"),
        (("ubuntu", "22.04"), {}, "4.9.3", None, None),
        (("ubuntu", "22.04"), {"source": "present"}, "3.4.4", "podman 3.4.4 knows no CDI", None),
        (("amzn", "2023"), {}, None, "Amazon Linux 2023 has no package podman", None),
        (("amzn", "2023"), {"version": "5.4"}, None, None, "has no podman, and 5.4 is asked for"),
        (("amzn", "2023"), {"source": "present"}, "5.4.2", None, None),
        (("ubuntu", "24.04"), {"toolkit": "1.19.1"}, None, "cannot read CDI specifications of toolkit 1.19.1", None),
        (("ubuntu", "24.04"), {"toolkit": "1.18.2"}, None, None, None),
        (("ubuntu", "24.04"), {"toolkit": None}, None, None, "and the newest toolkit is to come"),
        (("ubuntu", "24.04"), {"toolkit": "1.19.1", "version": "5.1"}, None, None, "5.1 is asked for"),
        (("ubuntu", "24.04"), {"toolkit": "1.19.1", "version": "5.0"}, None, "cannot read", "5.0 is asked for"),
        (("debian", "13"), {"toolkit": "1.19.1"}, None, None, None),
        (("rocky", "9"), {"toolkit": "1.19.1"}, None, None, None),
    ],
)
def test_a_podman_that_would_hand_in_no_gpu_is_refused_before_the_node_is_touched(
    system: tuple[str, str], asked: dict[str, Any], there: str | None, refused: str | None, told: str | None
) -> None:
    asked = dict(asked)
    toolkit = asked.pop("toolkit", "1.17.8")
    data = {**ASKED, "toolkit": {"cdi": "generate", **({"version": toolkit} if toolkit else {})}}
    own = settings_from({**data, "podman": {"enabled": True, **asked}})
    os = replace(GOOD.operating_system, id=system[0], version_id=system[1])
    no_toolkit = replace(GOOD.toolkit, packages=(), version=None)
    node = replace(GOOD, operating_system=os, podman=Podman(there), toolkit=no_toolkit).machine
    for found, expected in ((refusals(own, node), refused), (cautions(own, node), told)):
        every = [item for item in found if item.component == "podman"]
        assert [expected in item.reason and item.source != "" and item.remedy != "" for item in every if expected] == (
            [True] if expected else []
        )
        assert bool(every) == bool(expected)


@pytest.mark.parametrize(
    ("asked", "others", "actual", "package"),
    [
        ({"default_runtime": "crun"}, False, replace(THERE, programs=("runc",)), "crun"),
        ({"default_runtime": "crun"}, False, Podman(), "crun"),
        ({"default_runtime": "crun"}, False, replace(THERE, programs=("crun",)), None),
        ({"default_runtime": "crun"}, False, replace(THERE, runtimes=(("crun", ("/opt/crun",)),)), None),
        ({"default_runtime": "runc"}, False, THERE, "runc"),
        ({"default_runtime": "runc"}, True, THERE, None),
        ({"default_runtime": "nvidia"}, False, THERE, None),
        ({}, False, THERE, None),
    ],
)
def test_the_program_of_the_default_runtime_is_installed_where_it_is_missing(
    asked: dict[str, Any], others: bool, actual: Podman, package: str | None
) -> None:
    own = settings_from({**ASKED, "podman": {"enabled": True, **asked}, "containerd": {"enabled": others}})
    assert lacks(desired_of(own), actual) == package
    steps = [step.action for step in decide(desired_of(own), actual, "1.17.8").steps]
    assert (f"install {package}" in steps) == (package is not None)
    # Where podman is somebody else's, so is that; said before its file breaks every container.
    theirs = settings_from({
        **ASKED, "podman": {"enabled": True, "source": "present", **asked}, "containerd": {"enabled": others},
    })  # fmt: skip
    told = [item.reason for item in refusals(theirs, replace(GOOD, podman=actual).machine)]
    assert [unnamed(text, package) for text in told] == ([[]] if package else [])
    findings = decide(desired_of(theirs), actual, "1.17.8").findings
    assert package is None or any(item.by_person and str(package) in item.what for item in findings)


def test_the_probe_tells_of_runtimes_that_are_there() -> None:
    assert parse_podman(["program=crun", *lines("4.3.1")]) == replace(THERE, programs=("crun",))
    assert parse_podman(["program=runc"]) == Podman(programs=("runc",))
