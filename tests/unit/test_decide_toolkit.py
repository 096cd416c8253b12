"""The container toolkit is decided once: drift, plan and operations say the same, and the steps are enough."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyinfra.context import ctx_host

from gpunode.base.decision import Decision, bad
from gpunode.base.messages import split_remedy
from gpunode.components.driver.state import DriverState
from gpunode.components.runtimes.toolkit.cdi import CdiSpecification
from gpunode.components.runtimes.toolkit.configuration import desired_keys
from gpunode.components.runtimes.toolkit.decide import Desired, decide, desired_of
from gpunode.components.runtimes.toolkit.packages import hold_text, moves
from gpunode.components.runtimes.toolkit.specification import Specification
from gpunode.components.runtimes.toolkit.state import PACKAGES, ContainerToolkit
from gpunode.facts.driver import Driver as DriverFact
from gpunode.facts.gpu import Mig as MigFact
from gpunode.facts.toolkit import ContainerToolkit as ToolkitFact
from gpunode.operations import toolkit
from gpunode.packages.families.dnf import locked
from gpunode.settings import settings_from
from tests.support.agreement import assert_planned, assert_whole
from tests.support.simulated_host import Host, commands
from tests.support.toolkit import HELD, LOADED, OWN, REFRESHED
from tests.support.verify import GOOD

pytestmark = pytest.mark.pure

OLDER = tuple((name, "1.17.7-1" if name == PACKAGES[3] else "1.17.8-1") for name in PACKAGES)
SHARED = "accept-nvidia-visible-devices-envvar-when-unprivileged = false\n"
SHARED += "accept-nvidia-visible-devices-as-volume-mounts = true\n"
MINE = CdiSpecification("/etc/cdi/mine.yaml", LOADED)
LATER = CdiSpecification("/var/run/cdi/nvidia.yaml", LOADED, False, ("disable-device-node-modification",))
SPECIFICATIONS = st.lists(
    st.sampled_from([OWN, replace(OWN, driver_version="570.172.08"), REFRESHED, LATER, MINE]),
    max_size=3, unique_by=lambda item: item.path,
)  # fmt: skip
TOOLKITS = st.builds(
    lambda cdi, **changes: replace(GOOD.toolkit, cdi=tuple(cdi), **changes),
    cdi=SPECIFICATIONS,
    packages=st.sampled_from([
        GOOD.toolkit.packages, GOOD.toolkit.packages, OLDER, OLDER[:3], (),
        (*GOOD.toolkit.packages, ("nvidia-docker2", "2.13.0-1")),
    ]),
    version=st.sampled_from(["1.17.8", "1.17.8", "1.17.7", "1.20.0", None]),
    runtime_path=st.sampled_from([GOOD.toolkit.runtime_path, GOOD.toolkit.runtime_path, None]),
    held=st.sampled_from([(), tuple(sorted(PACKAGES)), PACKAGES[:1]]),
    hold_text=st.sampled_from([None, HELD.hold_text, "Package: older\n"]),
    config_text=st.sampled_from([None, SHARED, "= nonsense", 'nvidia-container-runtime.mode = "jit-cdi"\n']),
    cdi_drafts=st.sampled_from([(), (), ("/etc/cdi/nvidia.yaml.gpunode-new.AbC123.yaml",)]),
    cdi_refresh=st.sampled_from([None, None, "enabled", "enabled", "disabled", "masked"]),
    unlinked=st.sampled_from([(), ("/dev/nvidia0",)]),
    link_rule=st.booleans(),
)  # fmt: skip
DRIVERS = st.sampled_from([
    GOOD.driver, GOOD.driver, replace(GOOD.driver, loaded_version=None),
    replace(GOOD.driver, loaded_version="570.172.08"),
])  # fmt: skip
ASKED = st.fixed_dictionaries({}, optional={
    "version": st.sampled_from(["1.17.8", "1.18.1"]), "hold": st.booleans(), "migrate": st.booleans(),
    "preset": st.just("shared"), "mode": st.sampled_from(["auto", "jit-cdi"]),
    "cdi": st.sampled_from(["off", "generate"]), "device_links": st.booleans(),
})  # fmt: skip
ALLOW = st.sampled_from(["nothing", "restart", "reboot"])


def settings(asked: dict[str, Any], allow: str) -> Any:
    if asked.get("mode") == "jit-cdi" and asked.get("version") == "1.17.8":
        asked = {key: value for key, value in asked.items() if key != "mode"}
    return settings_from({"driver": {"version": LOADED}, "toolkit": asked, "disruption": {"allow": allow}})


def _applied(
    decision: Decision[Any], desired: Desired, there: ContainerToolkit, driver: DriverState
) -> ContainerToolkit:
    """Return what the steps leave behind, each done as its change says; nvidia-ctk makes what is true."""
    for step in decision.steps:
        change = step.change
        if step.waits is not None:
            continue
        if step.action.startswith("install"):
            version = desired.version or "1.17.8"
            rest = tuple((name, found) for name, found in there.packages if name not in PACKAGES)
            there = replace(there, packages=(*rest, *((name, f"{version}-1") for name in PACKAGES)), version=version)
            there = replace(there, runtime_path=GOOD.toolkit.runtime_path)
        elif step.action == "remove nvidia-docker2 2.13.0-1":
            there = replace(there, packages=tuple(each for each in there.packages if each[0] in PACKAGES))
        elif step.action == "hold its packages":
            there = replace(there, held=tuple(there.to_hold))
            there = replace(there, hold_text=hold_text(desired.family, there, True))
        elif isinstance(change, str):
            there = replace(there, config_text=change)
        elif isinstance(change, Specification):
            left = [each for each in there.cdi if each.path not in (*change.going, *change.aside, change.target)]
            there = replace(there, cdi=tuple(left), cdi_drafts=())
            if change.target is not None:
                made = CdiSpecification(change.target, change.version, change.own)
                enabled = None if change.own else "enabled"
                there = replace(there, cdi=(*there.cdi, made), cdi_refresh=enabled)
        else:
            assert step.change is None or isinstance(step.change, tuple)
            there = replace(there, unlinked=(), link_rule=True)
    return there


@given(there=TOOLKITS, driver=DRIVERS, asked=ASKED, allow=ALLOW)
def test_every_difference_of_the_toolkit_is_a_step_s_or_a_person_s_and_the_steps_are_enough(
    there: ContainerToolkit, driver: DriverState, asked: dict[str, Any], allow: str
) -> None:
    desired = desired_of(settings(asked, allow), GOOD.operating_system)
    # The boot comes first, where it is allowed.
    desired = replace(desired, boots=False)
    decision = decide(desired, there, driver)
    before = ("install the NVIDIA", "remove nvidia-docker2", "hold its", "let go of its")
    # config.toml comes before CDI specifications.
    whole = "config.toml" in str(decision.refusal)
    assert_whole(decision, before if whole else (*before, "write config.toml"))
    after = there
    for _ in range(3):  # Other packages have other modes and hooks, a file without drafts a content.
        after = _applied(decide(desired, after, driver), desired, after, driver)
    left = decide(desired, after, driver)
    assert all(step.waits is not None for step in left.steps)
    # What is left waits for a boot or a person.
    settled = [item for step in left.steps for item in step.settles]
    assert all(item in settled or item.remedy != "run deploys/gpu_node.py again" for item in bad(*left.findings))


@given(there=TOOLKITS, driver=DRIVERS, asked=ASKED, allow=ALLOW)
def test_of_the_toolkit_drift_and_plan_say_the_same(
    there: ContainerToolkit, driver: DriverState, asked: dict[str, Any], allow: str
) -> None:
    assert_planned("toolkit", settings(asked, allow), replace(GOOD, toolkit=there, driver=driver))


@given(there=TOOLKITS, driver=DRIVERS, asked=ASKED)
def test_the_operations_of_the_toolkit_do_what_the_decision_promises(
    there: ContainerToolkit, driver: DriverState, asked: dict[str, Any]
) -> None:
    own = settings(asked, "restart")
    desired = desired_of(own, GOOD.operating_system)
    # Packages come before all else: what is decided then is asked of them.
    there = replace(there, packages=GOOD.toolkit.packages, version=desired.version or there.version)
    desired = replace(desired, version=None)
    assert not moves(there, None)
    decision = decide(desired, there, driver)
    refusals: list[str] = []
    for kind, operation, arguments in (
        (None, toolkit.held, {"family": "apt"} if desired.hold else None),
        (str, toolkit.configuration, {"desired": desired_keys(own.toolkit)}),
        (Specification, toolkit.specification, {"generate": desired.cdi}),
        (tuple, toolkit.device_links, {} if desired.device_links else None),
    ):
        if arguments is None:
            continue
        host = Host({ToolkitFact: there, DriverFact: driver, MigFact: GOOD.mig})
        with ctx_host.use(host):
            given_commands = commands(operation, host, **arguments)
        steps = [step for step in decision.steps if (kind and isinstance(step.change, kind)) or
                 (kind is None and step.action == "hold its packages")]  # fmt: skip
        if not refusals:
            # Behind a refusal a run comes to nothing more.
            assert (given_commands != []) == any(step.waits is None for step in steps), kind
        assert not (host.refusals and any(step.waits is None for step in steps))
        refusals += host.refusals
    told = " ".join(item.cause or "" for item in bad(*decision.findings))
    causes = (split_remedy(refusal)[0].removesuffix("; nothing was changed") for refusal in refusals)
    assert all(cause in told for cause in causes)


def test_dnf_s_lock_that_nobody_asks_for_any_more_is_drift() -> None:
    ours = locked("kernel-0:5.14*\n", GOOD.toolkit.to_hold, group="toolkit")
    there = replace(GOOD.toolkit, hold_text=ours)
    (step,) = decide(Desired(family="dnf"), there, GOOD.driver).steps
    assert [item.code for item in step.settles] == ["toolkit.held-packages"]
    assert decide(Desired(family="dnf"), replace(there, hold_text="kernel-0:5.14*\n"), GOOD.driver).steps == ()
