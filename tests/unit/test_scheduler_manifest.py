"""kube-scheduler's manifest and configuration file: patched as kubeadm, and as others, write it."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from gpunode.kubernetes.gpushare.configuration import SchedulerError
from gpunode.kubernetes.gpushare.manifest import parse_manifest, patched, unpatched
from tests.support.scheduler_manifest import KUBEADM

pytestmark = pytest.mark.pure
PATH = "/etc/kubernetes/gpunode/scheduler-0123456789ab.yaml"
BARE = """apiVersion: v1
kind: Pod
metadata: {name: kube-scheduler}
spec:
    hostNetwork: true
    containers:
      - name: kube-scheduler
        image: registry.example.org:5000/kube-scheduler-amd64:v1.20.2@sha256:0123
        command: ["/usr/local/bin/kube-scheduler"]
        args:
          - --kubeconfig
          - /etc/kubernetes/scheduler.conf
          - --leader-elect
          - --v=2
"""


def _container(text: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(text)["spec"]["containers"][0]
    return found


@pytest.mark.parametrize("text", [KUBEADM, BARE, KUBEADM.replace("\n", "\r\n"), KUBEADM.rstrip("\n")])
def test_the_scheduler_is_given_its_configuration_and_every_other_line_stays(text: str) -> None:
    made = patched(text, PATH)
    container = _container(made)
    assert f"--config={PATH}" in [*container["command"], *container.get("args", [])]
    assert {"name": "gpunode-scheduler-configuration", "mountPath": PATH, "readOnly": True} in container["volumeMounts"]
    (volume,) = [each for each in yaml.safe_load(made)["spec"]["volumes"] if each["name"].startswith("gpunode")]
    assert volume["hostPath"] == {"path": PATH, "type": "File"}
    assert [line for line in made.split("\n") if "gpunode" not in line] == text.split("\n")
    assert unpatched(made) == text


def test_patching_again_changes_nothing_and_another_file_takes_the_place_of_the_first() -> None:
    made = patched(KUBEADM, PATH)
    assert patched(made, PATH) == made
    other = PATH.replace("0123", "4567")
    assert patched(made, other) == patched(KUBEADM, other)


def test_what_the_manifest_says_is_read() -> None:
    found = parse_manifest(KUBEADM)
    assert (found.version, found.health) == ("1.31.4", "https://127.0.0.1:10259/healthz")
    assert found.options["leader-elect"] == "true"
    bare = parse_manifest(BARE)
    assert (bare.version, bare.health) == ("1.20.2", "https://127.0.0.1:10259/healthz")
    assert bare.options == {"kubeconfig": "/etc/kubernetes/scheduler.conf", "leader-elect": "true", "v": "2"}
    named = KUBEADM.replace("port: 10259", "port: probe-port").replace("path: /healthz", "path: /livez")
    ports = named.replace("    name: kube-scheduler\n    vol", "    name: kube-scheduler\n    ports:\n"
                          "    - {name: probe-port, containerPort: 10301}\n    vol")  # fmt: skip
    assert parse_manifest(ports).health == "https://127.0.0.1:10301/livez"


@pytest.mark.parametrize(
    "text",
    [
        "kind: [", "a: b\nkind: Deployment\n", KUBEADM + "---\n" + KUBEADM,
        KUBEADM.replace("- kube-scheduler  # the program", "- sh"),
        KUBEADM.replace("name: kube-scheduler\n    vol", "name: other\n    vol").replace(
            "  hostNetwork", "  - {name: third}\n  hostNetwork"),
        KUBEADM.replace("- --bind-address=127.0.0.1", "- --config=/etc/own.yaml"),
        KUBEADM.replace("- --bind-address=127.0.0.1", "- 5"),
        BARE.replace("    hostNetwork: true\n", "    volumes: []\n"),
        BARE.replace("    hostNetwork: true\n", "    volumes: [{name: a, emptyDir: {}}]\n"),
        patched(KUBEADM, PATH).replace("  # gpunode gpushare", ""),
        # Of a key that is there twice, the last one counts.
        KUBEADM.replace("status: {}", "  volumes:\n  - {name: other, emptyDir: {}}\nstatus: {}"),
    ],
    ids=["no YAML", "no Pod", "two", "another program", "no container of it", "somebody else's file", "no word",
         "an empty list", "a list in one line", "without marks", "a key twice"],
)  # fmt: skip
def test_a_manifest_that_cannot_be_changed_safely_is_refused(text: str) -> None:
    with pytest.raises(SchedulerError):
        patched(text, PATH)


@settings(deadline=None)
@given(st.text(alphabet=" -:#[]{}&*!|>'\"%@`\n\tabk0", max_size=60), st.integers(0, len(KUBEADM)))
def test_whatever_is_written_into_a_manifest_it_is_patched_rightly_or_refused(noise: str, place: int) -> None:
    text = KUBEADM[:place] + noise + KUBEADM[place:]
    try:
        made = patched(text, PATH)
    except SchedulerError:
        return
    assert unpatched(made) == text and f"--config={PATH}" in _container(made)["command"]
