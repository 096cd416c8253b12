"""podman: what its files of settings say, and what is to be done about it."""

from __future__ import annotations

import base64
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpunode.base.findings import FindingClass
from gpunode.components.runtimes.podman.decide import PATH, Desired, decide
from gpunode.components.runtimes.podman.state import Podman, parse_podman
from gpunode.components.runtimes.runtime import NVIDIA_RUNTIME

pytestmark = pytest.mark.pure

OF_PACKAGE = "/usr/share/containers/containers.conf"
OTHER = "/etc/containers/containers.conf.d/99-other.conf"


@given(text=st.text())
def test_a_file_of_any_text_is_read_or_named_as_unreadable(text: str) -> None:
    encoded = base64.b64encode(text.encode()).decode()
    found = parse_podman(["podman=podman version 5.4.2", f"file={PATH} {encoded}"])
    assert found.version == "5.4.2"
    assert all(item.startswith(f"{PATH}: ") for item in found.unreadable)


@given(
    actual=st.builds(
        Podman,
        version=st.sampled_from([None, "3.4.4", "4.3.1", "4.9.3", "5.1.0", "5.4.2"]),
        default_runtime=st.sampled_from([None, "nvidia", "crun"]),
        said_in=st.sampled_from([None, OF_PACKAGE, "/etc/containers/containers.conf", PATH, OTHER]),
        runtimes=st.sampled_from([(), (("nvidia", (NVIDIA_RUNTIME,)),), (("nvidia", ("/opt/other",)),)]),
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
    assert all(bad[what].by_person for what in set(bad) - settled)
    # Carried out: the package comes, and the drop-in is read.
    after = actual
    for step in decision.steps:
        if step.action == "install podman":
            after = replace(after, version={None: "4.3.1", "4.3": "4.3.1", "5.4": "5.4.2"}[version])
        elif step.action == "install crun":
            after = replace(after, programs=("crun",))
        else:
            # What another file says later stays as it is.
            nvidia = (
                after.runtimes if dict(after.runtimes_in).get("nvidia") == OTHER else (("nvidia", (NVIDIA_RUNTIME,)),)
            )
            after = replace(after, default_runtime=runtime, said_in=PATH, runtimes=nvidia)
    assert decide(desired, after, toolkit).steps == ()
