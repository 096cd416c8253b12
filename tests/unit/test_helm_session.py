"""A release read and changed by a helm that is SIMULATED: it answers what a test made up, and keeps what it is told."""

from __future__ import annotations

from typing import Any

import pytest

from gpunode.base.decision import Decision, bad
from gpunode.base.reading import ParseError
from gpunode.kubernetes.helm.change import Act, HelmAction, ReleaseChange, change
from gpunode.kubernetes.helm.commands import Command, HelmError, explained
from gpunode.kubernetes.helm.manifest import Identity
from gpunode.kubernetes.helm.session import Output, Session
from gpunode.operations.helm import waiting
from tests.support.helm import MANIFEST, NOW, OTHER, SAME, TIMEOUT, commands
from tests.support.helm_session import SimulatedHelm
from tests.support.messages import unnamed

pytestmark = pytest.mark.pure


class Salted(SimulatedHelm):
    """Hash a password anew with each rendering, as charts do by htpasswd, and make certificates by genCA."""

    renderings = 0
    values = '{"password": "one"}'

    def _get(self, command: Command) -> str:
        return self.values if command.words[2] == "values" else super()._get(command)

    def _template(self, command: Command) -> str:
        self.renderings += 1
        return MANIFEST + SALTED.format(self.renderings)


SALTED = """---
apiVersion: v1
kind: ConfigMap
metadata: {{name: web-config}}
data: {{web-config.yaml: "alice: $2a$10$salt-{}"}}
"""


def _decided(helm: SimulatedHelm, **values: str) -> Decision[ReleaseChange]:
    return Session(commands(namespace="gpu", take_over=True), helm).decide(values, (), NOW)[2]


def test_what_a_chart_makes_anew_with_each_rendering_is_no_difference() -> None:
    """Else each run has a new revision, drift never ends, and what is told has a hash of the password in it."""
    helm = Salted([("deployed", "", MANIFEST + SALTED.format(0))])
    decision = _decided(helm, password="one")
    assert not decision.steps and not bad(*decision.findings) and helm.renderings == 2
    # The values are another password's: that shows nowhere else.
    (step,) = _decided(helm, password="two").steps
    assert step.change is not None and [each.act for each in step.change.steps] == [Act.UPGRADE]
    assert "other values" in step.change.steps[0].reason and "salt" not in repr(step)


def test_beside_that_a_real_difference_is_told_alone_and_a_failed_upgrade_is_not_tried_again() -> None:
    old = OTHER + SALTED.format(0)
    (step,) = _decided(Salted([("deployed", "", old)]), password="one").steps
    assert step.change is not None and "plugin:v0" in step.change.steps[0].reason and "salt" not in repr(step)
    undone = [
        ("superseded", "", old),
        ("failed", "boom", MANIFEST + SALTED.format(9)),
        ("deployed", "Rollback to 1", old),
    ]
    decision = _decided(Salted(undone), password="one")
    assert not decision.steps and unnamed(str(decision.refusal), "revision 2", "failed") == []


def test_a_chart_that_renders_the_same_is_asked_for_no_values() -> None:
    helm = SimulatedHelm([("deployed", "", OTHER)])
    assert _decided(helm).steps and helm.told.count("template") == 2 and helm.told.count("get") == 1
    helm = SimulatedHelm([("deployed", "", SAME)])
    assert not _decided(helm).steps and helm.told.count("template") == 1


def _run(helm: SimulatedHelm) -> ReleaseChange:
    session = Session(commands(namespace="gpu", take_over=True), helm)
    wanted = session.desired({}, "1.31.0", ["v1"])
    found = change(wanted, session.reading(), NOW, TIMEOUT)
    session.carry_out(found, {"a": 1})
    return found


@pytest.mark.parametrize(
    ("revisions", "live", "told"),
    [
        (
            [("superseded", "", OTHER), ("deployed", "", SAME)],
            {},
            ["show", "template", "list", "history", "get", "kubectl get"],
        ),
        ([], {}, ["show", "template", "list", "upgrade"]),
        ([("deployed", "", OTHER), ("pending-upgrade", "", "")], {}, ["rollback 1", "upgrade"]),
        ([("pending-install", "", "")], {}, ["uninstall", "upgrade"]),
        ([("deployed", "", SAME)], {"by_hand": ("plugin:v1", "plugin:debug")}, ["kubectl get", "upgrade"]),
        ([("deployed", "", SAME)], {"emptied": True}, ["kubectl get", "upgrade"]),
        # None of its objects is there to be asked for.
        ([("deployed", "", "# nothing\n")], {}, ["history", "get", "upgrade"]),
    ],
    ids=["as asked", "none", "left behind", "a first one left behind", "by hand", "gone by hand", "no objects"],
)
def test_helm_is_told_what_is_to_be_done(revisions: list[Any], live: dict[str, Any], told: list[str]) -> None:
    helm = SimulatedHelm(revisions, **live)
    _run(helm)
    assert helm.told[-len(told) :] == told
    assert helm.stdin[-1] == ('{"a": 1}' if told[-1] == "upgrade" else None)


def test_a_chart_of_another_version_than_was_judged_is_refused() -> None:
    helm = SimulatedHelm([], version="0.11.0")
    with pytest.raises(HelmError, match=r"0\.11\.0.*device_plugin\.version.*0\.20\.0"):
        _run(helm)
    assert helm.told == ["show"]


def test_values_are_compared_with_the_chart_s_own_where_a_person_set_some() -> None:
    helm = SimulatedHelm([])
    session = Session(commands(namespace="gpu", values={"toleration": [], "nfd": {"worker": {}}}), helm)
    (told,) = session.unknown_values(session.desired({}, "1.31.0", ["v1"]))
    assert unnamed(told, "toleration", "tolerations") == []
    assert Session(commands(namespace="gpu"), helm).unknown_values(session.desired({}, "1.31.0", ["v1"])) == ()
    assert helm.told.count("show") == 3


def test_the_cluster_says_its_version_and_apis() -> None:
    helm = SimulatedHelm([])
    assert Session(commands(namespace="gpu"), helm).cluster() == ("1.31.4", ("apps/v1", "v1"))


@pytest.mark.parametrize(
    "answer", ["", "{}", '{"serverVersion": {"gitVersion": "hunter"}}', "[]", '{"serverVersion": 1}']
)
def test_a_cluster_without_a_version_is_refused(answer: str) -> None:
    def run(command: Command) -> Output:
        return Output(0, answer, "")

    with pytest.raises(ParseError, match="version"):
        Session(commands(namespace="gpu"), run).cluster()


@pytest.mark.parametrize(
    ("verb", "last"),
    [*((verb, verb) for verb in ("show", "template", "list", "history", "get")), ("rollback", "rollback 1")],
)
def test_what_fails_is_the_end(verb: str, last: str) -> None:
    behind = [("pending-upgrade", "", "")] if verb == "rollback" else []
    words = "Error: Kubernetes cluster unreachable: connection refused"
    helm = SimulatedHelm([("deployed", "", OTHER), *behind], fails={verb: words})
    with pytest.raises(HelmError, match=r"kubernetes\.kubeconfig"):
        _run(helm)
    assert helm.told[-1] == last


def test_what_failed_before_is_refused_after_it_was_read() -> None:
    helm = SimulatedHelm([("superseded", "", OTHER), ("failed", "", SAME), ("deployed", "Rollback to 1", OTHER)])
    with pytest.raises(HelmError, match="revision 2"):
        _run(helm)
    assert "upgrade" not in helm.told


def test_a_rollback_to_nothing_is_no_command() -> None:
    helm = SimulatedHelm([])
    with pytest.raises(HelmError):
        Session(commands(namespace="gpu"), helm).carry_out(ReleaseChange((HelmAction(Act.ROLLBACK, "why"),)), {})
    assert not helm.told


WAITED = (
    Identity("apps", "DaemonSet", "", "nvdp"),
    Identity("apps", "Deployment", "", "gpu-operator"),
    Identity("", "ConfigMap", "", "entries"),
    Identity("nvidia.com", "ClusterPolicy", "", "cluster-policy"),
    Identity("apiextensions.k8s.io", "CustomResourceDefinition", "", "clusterpolicies.nvidia.com"),
)


def test_what_helm_waits_for_is_said_before_it_begins_and_for_how_long() -> None:
    third, fourth = (waiting(WAITED, version, 300) for version in ("3.19.0", "4.2.3"))
    named = ("nvdp", "gpu-operator", "300", "kubernetes.timeout")
    assert unnamed(third, *named) == [] and unnamed(third, "ClusterPolicy", "ConfigMap") == [
        "ClusterPolicy",
        "ConfigMap",
    ]
    assert unnamed(fourth, *named, "ClusterPolicy") == [] and unnamed(fourth, "ConfigMap") == ["ConfigMap"]
    assert waiting(WAITED[2:3], "4.2.3", 300) == ""
    many = waiting([Identity("apps", "DaemonSet", "", f"set-{number}") for number in range(9)], "4.2.3", 300)
    assert unnamed(many, "set-5", "3") == [] and unnamed(many, "set-6") == ["set-6"]


@pytest.mark.parametrize("words", ["", "\n", "x" * 5000])
def test_words_that_nobody_knows_are_one_line(words: str) -> None:
    told = explained("helm upgrade", words)
    assert "\n" not in told and len(told) < 5000


def test_no_manifest_shows_where_a_session_is_printed() -> None:
    helm = SimulatedHelm([("deployed", "", MANIFEST)])
    reading: Any = Session(commands(namespace="gpu"), helm).reading()
    assert "hunter2" not in repr(reading)
