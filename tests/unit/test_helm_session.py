"""A release read and changed by a helm that is SIMULATED: it answers what a test made up, and keeps what it is told."""

from __future__ import annotations

from typing import Any

import pytest

from gpunode.base.decision import Decision, bad
from gpunode.base.reading import ParseError
from gpunode.kubernetes.helm.change import Act, ReleaseChange, Step, change
from gpunode.kubernetes.helm.commands import Command
from gpunode.kubernetes.helm.errors import explained
from gpunode.kubernetes.helm.manifest import Identity
from gpunode.kubernetes.helm.program import HelmError
from gpunode.kubernetes.helm.session import Output, Session
from gpunode.kubernetes.helm.waits import waiting
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


def test_a_release_that_is_as_asked_is_only_read() -> None:
    helm = SimulatedHelm([("superseded", "", OTHER), ("deployed", "", SAME)])
    assert not _run(helm).steps
    assert helm.told == ["show", "template", "list", "history", "get", "kubectl get"]


def test_no_release_is_installed_with_its_values_on_standard_input() -> None:
    helm = SimulatedHelm([])
    _run(helm)
    assert helm.told == ["show", "template", "list", "upgrade"] and helm.stdin[-1] == '{"a": 1}'


def test_what_was_left_behind_is_recovered_and_then_upgraded() -> None:
    helm = SimulatedHelm([("deployed", "", OTHER), ("pending-upgrade", "", "")])
    _run(helm)
    assert helm.told[-2:] == ["rollback 1", "upgrade"]
    first = SimulatedHelm([("pending-install", "", "")])
    _run(first)
    assert first.told[-2:] == ["uninstall", "upgrade"]


def test_what_was_changed_by_hand_is_brought_back() -> None:
    helm = SimulatedHelm([("deployed", "", SAME)], by_hand=("plugin:v1", "plugin:debug"))
    found = _run(helm)
    assert found.by_hand and helm.told[-1] == "upgrade"
    gone = SimulatedHelm([("deployed", "", SAME)], emptied=True)
    assert _run(gone).steps[0].reason == "changed by hand: Secret credentials: absent; DaemonSet nvdp: absent"


def test_a_chart_of_another_version_than_was_judged_is_refused() -> None:
    helm = SimulatedHelm([], version="0.11.0")
    with pytest.raises(HelmError, match=r"is version 0\.11\.0, and device_plugin\.version is 0\.20\.0"):
        _run(helm)
    assert helm.told == ["show"]


def test_values_are_compared_with_the_chart_s_own_where_a_person_set_some() -> None:
    helm = SimulatedHelm([])
    session = Session(commands(namespace="gpu", values={"toleration": [], "nfd": {"worker": {}}}), helm)
    (told,) = session.unknown_values(session.desired({}, "1.31.0", ["v1"]))
    assert "did you mean 'tolerations'?" in told
    assert Session(commands(namespace="gpu"), helm).unknown_values(session.desired({}, "1.31.0", ["v1"])) == ()
    assert helm.told.count("show") == 3


def test_a_release_of_no_objects_has_none_to_ask_for() -> None:
    helm = SimulatedHelm([("deployed", "", "# nothing\n")])
    _run(helm)
    assert "kubectl get" not in helm.told


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


def test_a_recovery_that_fails_is_the_end() -> None:
    helm = SimulatedHelm([("deployed", "", OTHER), ("pending-upgrade", "", "")], fails={"rollback": "Error: timed out"})
    with pytest.raises(HelmError, match=r"helm rollback: Error: timed out\n.*not ready in time"):
        _run(helm)
    assert helm.told[-1] == "rollback 1"


def test_what_failed_before_is_refused_after_it_was_read() -> None:
    helm = SimulatedHelm(
        [("superseded", "", OTHER), ("failed", "no image", SAME), ("deployed", "Rollback to 1", OTHER)]
    )
    with pytest.raises(HelmError, match=r"revision 2 with the same content failed and was rolled back \(no image\)"):
        _run(helm)
    assert "upgrade" not in helm.told


@pytest.mark.parametrize("verb", ["show", "template", "list", "history", "get"])
def test_a_question_that_fails_changes_nothing(verb: str) -> None:
    helm = SimulatedHelm(
        [("deployed", "", OTHER)], fails={verb: "Error: Kubernetes cluster unreachable: connection refused"}
    )
    with pytest.raises(HelmError, match=r"look at kubernetes\.kubeconfig"):
        _run(helm)
    assert helm.told[-1] == verb


def test_a_rollback_to_nothing_is_no_command() -> None:
    helm = SimulatedHelm([])
    with pytest.raises(HelmError, match="to no revision"):
        Session(commands(namespace="gpu"), helm).carry_out(ReleaseChange((Step(Act.ROLLBACK, "why"),)), {})
    assert not helm.told


# Helm's own words, in part as people report them -> what of the explanation.
WORDS: dict[str, str] = {
    'Error: Kubernetes cluster unreachable: Get "http://localhost:8080/version": connection refused': "no answer",
    'Error: kubernetes cluster unreachable: Get "https://10.0.0.1:6443/version": i/o timeout': "proxy.no_proxy",
    "Error: UPGRADE FAILED: another operation (install/upgrade/rollback) is in progress": "began in between",
    'Error: path "/srv/charts/plugin" not found': "not in that version",
    'Error: chart "nvidia-device-plugin" version "9.9.9" not found in https://mirror repository': "not in that version",
    "Error: UPGRADE FAILED: release nvdp failed, and has been rolled back due to atomic being set: "
    "context deadline exceeded": "not ready in time",
    "Error: UPGRADE FAILED: release nvdp failed, and has been rolled back due to rollback-on-failure being set: "
    "resource DaemonSet/gpu/nvdp not ready. status: InProgress, message: Updated: 1/2": "not ready in time",
    "Error: chart requires kubeVersion: >= 1.99.0-0 which is incompatible with Kubernetes v1.20": "for the cluster",
    'Error: INSTALLATION FAILED: Unable to continue with install: ConfigMap "a" exists and cannot be imported into the '
    "current release: invalid ownership metadata": "belongs to no release",
    "Error: tls: failed to verify certificate: x509: certificate signed by unknown authority": "ca_file",
    'Error: UPGRADE FAILED: conflict occurred while applying object: conflict with "kubectl-edit"': "server-side apply",
}


@pytest.mark.parametrize("words", WORDS)
def test_helm_s_words_are_told_with_cause_and_remedy(words: str) -> None:
    told, reason = explained("helm upgrade", f"WARNING: kubeconfig is group-readable\n{words}\n").splitlines()
    assert told.startswith("helm upgrade: Error: ")
    assert WORDS[words] in reason


def test_the_list_below_an_error_is_told_and_explained() -> None:
    words = 'Error: 1 error occurred:\n\t* ClusterRole "gpu-operator" already exists\n\n'
    told, reason = explained("helm install", words, "gpu_operator").splitlines()
    assert told == 'helm install: Error: 1 error occurred: * ClusterRole "gpu-operator" already exists'
    assert "another gpu_operator.release or namespace" in reason


# What helm 3.19 and 4.2 said of a Deployment whose image is not to be had; the stack cut short. The line of a
# ClusterPolicy is made up, of the same form: no API server here takes one.
DEBUGGED = """client.go:144: 2026-01-15 12:00:27.5 +0000 UTC m=+0.4 [debug] creating 3 resource(s)
wait.go:50: 2026-01-15 12:00:27.8 +0000 UTC m=+0.5 [debug] beginning wait for 3 resources with timeout of 12s
ready.go:452: 2026-01-15 12:00:27.9 +0000 UTC m=+0.5 [debug] ReplicaSet is not ready: opn/gpu-operator-865b76b599. \
observedGeneration (0) does not match spec generation (1).
ready.go:303: 2026-01-15 12:00:29.8 +0000 UTC m=+2.5 [debug] Deployment is not ready: opn/gpu-operator. \
0 out of 1 expected pods are ready
wait.go:97: 2026-01-15 12:00:39.8 +0000 UTC m=+12.5 [debug] Error received when checking status of resource \
gpu-operator. Error: 'client rate limiter Wait returned an error: rate: Wait(n=1) would exceed context deadline'
Error: release op failed, and has been uninstalled due to atomic being set: context deadline exceeded
helm.go:92: 2026-01-15 12:00:39.9 +0000 UTC m=+12.6 [debug] context deadline exceeded
release op failed, and has been uninstalled due to atomic being set
helm.sh/helm/v3/pkg/action.(*Install).failRelease
\thelm.sh/helm/v3/pkg/action/install.go:517
"""
LISTED = """Error: release op failed, and has been uninstalled due to rollback-on-failure being set: \
resource Deployment/opn/gpu-operator not ready. status: InProgress, message: Available: 0/1
resource ClusterPolicy//cluster-policy not ready. status: InProgress, message: ClusterPolicy is not ready, states not \
ready: [state-operator-validation state-dcgm-exporter gpu-feature-discovery state-mig-manager]
context deadline exceeded
"""


def test_what_was_not_ready_is_told_though_helm_has_gone_back() -> None:
    told, late, reason = explained("helm install", DEBUGGED).splitlines()
    assert told == (
        "helm install: Error: release op failed, and has been uninstalled due to atomic being set: context deadline "
        "exceeded"
    )
    assert late == "not ready when helm gave up: Deployment opn/gpu-operator: 0 out of 1 expected pods are ready"
    assert "not ready" in reason
    told, late, reason = explained("helm install", LISTED, "gpu_operator").splitlines()
    assert "resource Deployment/opn/gpu-operator not ready" in told
    assert "ClusterPolicy cluster-policy: InProgress, message: ClusterPolicy is not ready" in late
    assert "kubernetes.timeout" in reason


WAITED = (
    Identity("apps", "DaemonSet", "", "nvdp"),
    Identity("apps", "Deployment", "", "gpu-operator"),
    Identity("", "ConfigMap", "", "entries"),
    Identity("nvidia.com", "ClusterPolicy", "", "cluster-policy"),
    Identity("apiextensions.k8s.io", "CustomResourceDefinition", "", "clusterpolicies.nvidia.com"),
)


def test_what_helm_waits_for_is_said_before_it_begins_and_for_how_long() -> None:
    third, fourth = (waiting(WAITED, version, 300) for version in ("3.19.0", "4.2.3"))
    assert "ClusterPolicy" not in third and "DaemonSet nvdp, Deployment gpu-operator are ready" in third
    assert unnamed(third, "300 s", "(kubernetes.timeout)") == []
    assert "ClusterPolicy cluster-policy are ready" in fourth
    assert "ready when the operator's own pods run on every GPU node" in fourth and "ConfigMap" not in fourth
    assert waiting(WAITED[2:3], "4.2.3", 300) == ""
    assert waiting(WAITED[:1], "3.19.0", 300).startswith("helm 3.19.0 now waits until DaemonSet nvdp is ready")
    many = [Identity("apps", "DaemonSet", "", f"set-{number}") for number in range(9)]
    assert "set-5 and 3 more are ready" in waiting(many, "4.2.3", 300)


@pytest.mark.parametrize("words", ["", "\n", "Error: something new", "x" * 5000])
def test_words_that_nobody_knows_are_told_as_they_are(words: str) -> None:
    told = explained("helm upgrade", words)
    assert "\n" not in told and len(told) < 400


def test_no_manifest_shows_where_a_session_is_printed() -> None:
    helm = SimulatedHelm([("deployed", "", MANIFEST)])
    reading: Any = Session(commands(namespace="gpu"), helm).reading()
    assert "hunter2" not in repr(reading)
