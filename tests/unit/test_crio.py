"""CRI-O: what is in no output, and that its steps leave no difference; the rest is in tests/cases."""

from __future__ import annotations

import base64
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gpunode.base.disruption import Disruption
from gpunode.components.runtimes.crio.decide import decide
from gpunode.components.runtimes.crio.state import Crio, parse_crio
from gpunode.components.runtimes.judge import Desired
from gpunode.components.runtimes.runtime import Runtimes
from gpunode.node.requirements import judge as requirements
from gpunode.settings import settings_from
from gpunode.settings.cluster import default_runtime, needs_runtime_class
from tests.support.crio import EARLIER, PATH, RIGHT, STATES
from tests.support.verify import DATA, GOOD

pytestmark = pytest.mark.pure


def lines(files: dict[str, str], **others: str) -> list[str]:
    found = [f"{key}={value}" for key, value in others.items()]
    return [*found, *(f"file={path} {base64.b64encode(text.encode()).decode()}" for path, text in files.items())]


def test_the_texts_of_the_files_are_in_no_output() -> None:
    found = parse_crio(lines({PATH: "secret = 1"}, crio="crio version 1.31.0"))
    assert found.files and "secret" not in str(found.to_json()) + repr(found)


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


@given(actual=STATES, runtime=st.sampled_from(["nvidia", "crun"]), systemd=st.booleans())
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


def test_the_device_plugin_and_the_requirements_know_its_default_runtime() -> None:
    asked = {**DATA, "containerd": {"enabled": False}, "crio": {"enabled": True, "default_runtime": "crun"}}
    assert default_runtime(settings_from(asked)) == "crun" and needs_runtime_class(settings_from(asked))
    node = replace(GOOD, crio=RIGHT, containerd=replace(GOOD.containerd, version=None, default_runtime=None))
    told = {item.component: item.actual for item in requirements(node).requirements}
    assert told["default-runtime"] == "nvidia"
