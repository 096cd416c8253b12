"""The container toolkit beyond its packages: readings, preflight, verdict, and what the operations do."""

from __future__ import annotations

import base64
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest

from gpunode.base.findings import FindingClass
from gpunode.base.probe_output import checked
from gpunode.base.reading import ParseError, Unknown
from gpunode.components.toolkit import PACKAGES, CdiSpecification, ContainerToolkit, parse_toolkit
from gpunode.components.toolkit.cdi import CDI_MARK
from gpunode.components.toolkit.configuration import asked_of
from gpunode.facts.deb import DebPackages as DebPackagesFact
from gpunode.facts.driver import Driver as DriverFact
from gpunode.facts.toolkit import ContainerToolkit as ToolkitFact
from gpunode.lab.world.toolkit import modes
from gpunode.node.plan import plan
from gpunode.node.preflight import cautions, refusals
from gpunode.node.verdict import judge
from gpunode.operations import packages, toolkit
from gpunode.packages.families.dnf import LOCKLIST
from gpunode.packages.installed_packages import InstalledPackages
from gpunode.settings import settings_from
from gpunode.settings.toolkit import ToolkitSettings
from tests.support.messages import unnamed
from tests.support.simulated_host import Host, commands
from tests.support.toolkit import HELD, LOADED, OWN, REFRESHED
from tests.support.verify import GOOD

pytestmark = pytest.mark.pure

OLD = replace(OWN, driver_version="570.172.08")


def found(settings: dict[str, Any], reading: ContainerToolkit) -> dict[str, Any]:
    """Return what of the toolkit is not good, by what it is about."""
    asked = settings_from({"driver": {"version": LOADED}, "toolkit": settings})
    items = judge(asked, replace(GOOD, toolkit=reading))
    return {item.what: item for item in items if item.finding_class is not FindingClass.OK}


HostWith = Callable[..., Host]


@pytest.fixture
def host_with(host: Host) -> HostWith:
    """Return a function that gives a host with a reading of the toolkit, and other values of the driver's."""

    def make(reading: ContainerToolkit | Unknown, **driver: Any) -> Host:
        host.readings = {ToolkitFact: reading, DriverFact: replace(GOOD.driver, **driver)}
        host.noops.clear()
        host.refusals.clear()
        return host

    return make


def test_a_node_s_answer_is_read() -> None:
    text = base64.b64encode(b"mode = 1\n").decode()
    reading = parse_toolkit([
        "package=nvidia-docker2 2.13.0-1", "package=libnvidia-container1 1.17.8-1", "held=libnvidia-container1",
        f"config={text}", "cdi=/etc/cdi/nvidia.yaml 580.95.05 ours", "cdi=/var/run/cdi/x.json - foreign",
        "refresh=enabled", "unlinked=/dev/nvidia0", "link_rule=yes",
    ])  # fmt: skip
    assert reading.legacy == {"nvidia-docker2": "2.13.0-1"}
    assert (reading.held, reading.config_text) == (("libnvidia-container1",), "mode = 1\n")
    assert reading.cdi == (OWN, CdiSpecification("/var/run/cdi/x.json", None))
    assert (reading.cdi_refresh, reading.unlinked, reading.link_rule) == ("enabled", ("/dev/nvidia0",), True)


@pytest.mark.parametrize("line", ["package=x y z", "package=-o 1", "cdi=/etc/cdi/nvidia.yaml ours", "config=%"])
def test_an_answer_that_is_none_is_refused(line: str) -> None:
    with pytest.raises(ParseError):
        parse_toolkit([line])


@pytest.mark.parametrize("version, unit", [("1.17.9", None), ("1.18.0", "enabled"), ("1.20.0", "enabled")])
def test_a_unit_that_a_newer_toolkit_left_behind_makes_no_specification(version: str, unit: str | None) -> None:
    """Its nvidia-ctk does not know the variable that names the file: it prints the specification, and nobody has it."""
    lines = [f"ctk=NVIDIA Container Toolkit CLI version {version}", "refresh=enabled", "refresh_output=/run/n.yaml"]
    found = parse_toolkit(lines)
    assert (found.cdi_refresh, found.cdi_output) == (unit, unit and "/run/n.yaml")


def _probe(root: Path) -> ContainerToolkit:
    """Run the probe's part on CDI and links on a folder that stands for the node's root."""
    part = ToolkitFact().command().replace("/etc/cdi", f"{root}/etc/cdi").replace("/var/run/cdi", f"{root}/run")
    done = subprocess.run(["sh", "-c", part], capture_output=True, text=True, check=True)
    return parse_toolkit(checked(done.stdout.splitlines()))


@pytest.mark.real
def test_specifications_are_found_by_their_kind_and_dated_by_their_libcuda(tmp_path: Path) -> None:
    (tmp_path / "etc/cdi").mkdir(parents=True)
    (tmp_path / "run").mkdir()
    body = "kind: {}\nmounts:\n- hostPath: /usr/lib/libcuda.so.580.95.05\n- hostPath: /usr/lib/libcuda.so.1\n"
    body += "- hostPath: /opt/another/libcuda.so.535.1.2\n"
    (tmp_path / "etc/cdi/nvidia.yaml").write_text(f"{CDI_MARK}\n---\n" + body.format("nvidia.com/gpu"))
    (tmp_path / "etc/cdi/plugin.yaml").write_text(body.format("k8s.device-plugin.nvidia.com/gpu"))
    (tmp_path / "run/n.json").write_text('{"kind": "nvidia.com/gpu", "hostPath": "/lib/libcuda.so.570.172.08"}')
    (tmp_path / "run/empty.yaml").write_text("kind: nvidia.com/gpu\n")
    assert _probe(tmp_path).cdi == (
        CdiSpecification(f"{tmp_path}/etc/cdi/nvidia.yaml", "580.95.05", True, (), "/usr/lib/libcuda.so.580.95.05"),
        CdiSpecification(f"{tmp_path}/run/empty.yaml", None),
        CdiSpecification(f"{tmp_path}/run/n.json", "570.172.08", library="/lib/libcuda.so.570.172.08"),
    )


@pytest.mark.real
def test_a_specification_that_a_newer_toolkit_made_is_told_by_the_hooks_that_the_older_one_lacks(
    tmp_path: Path,
) -> None:
    (tmp_path / "etc/cdi").mkdir(parents=True)
    (tmp_path / "run").mkdir()
    hook = "  - {{hookName: createContainer, path: /usr/bin/nvidia-cdi-hook, args: [nvidia-cdi-hook, {}]}}\n"
    hooks = "".join(map(hook.format, ("update-ldcache", "enable-cuda-compat", "disable-device-node-modification")))
    text = f"kind: nvidia.com/gpu\nhooks:\n{hooks}hostPath: /lib/libcuda.so.{LOADED}\n"
    (tmp_path / "run/nvidia.yaml").write_text(text)
    (item,) = _probe(tmp_path).cdi
    assert item.hooks == ("nvidia-cdi-hook", "enable-cuda-compat", "disable-device-node-modification")
    assert replace(GOOD.toolkit, version="1.18.2", cdi=(item,)).stale_cdi(LOADED) == ()
    downgraded = replace(GOOD.toolkit, version="1.17.9", cdi=(item,))
    assert downgraded.stale_cdi(LOADED) == (item,)
    (finding,) = found({"cdi": "generate"}, downgraded).values()
    assert finding.actual == f"{item.path} with disable-device-node-modification"
    assert unnamed(finding.cause, "1.17.9") == []


@pytest.mark.real
def test_a_draft_that_a_run_left_behind_is_no_specification_and_is_found(tmp_path: Path, host_with: HostWith) -> None:
    (tmp_path / "etc/cdi").mkdir(parents=True)
    body = f"kind: nvidia.com/gpu\nhostPath: /lib/libcuda.so.{LOADED}\n"
    for name in ("nvidia.yaml", "nvidia.yaml.gpunode-new.AbC123", "nvidia.yaml.gpunode-new.AbC123.yaml"):
        (tmp_path / "etc/cdi" / name).write_text(f"{CDI_MARK}\n{body}")
    reading = _probe(tmp_path)
    assert [Path(item.path).name for item in reading.cdi] == ["nvidia.yaml"]
    assert len(reading.cdi_drafts) == 2
    left = replace(GOOD.toolkit, cdi=(OWN,), cdi_drafts=("/etc/cdi/nvidia.yaml.gpunode-new.AbC123.yaml",))
    for asked in ("generate", "off"):
        (finding,) = found({"cdi": asked}, left).values()
        assert finding.what == "CDI specification" and "AbC123.yaml" in finding.actual
    (command,) = commands(toolkit.specification, host_with(left), generate=True)
    assert command.endswith("/etc/cdi/nvidia.yaml.gpunode-new.AbC123.yaml")
    (command,) = commands(toolkit.specification, host_with(replace(left, cdi=())), generate=False)
    assert command.endswith("/etc/cdi/nvidia.yaml.gpunode-new.AbC123.yaml")


REFRESH_UNIT = """show_units() { :; }
unit() {
  case "$1" in
    *.path) unit="UnitFileState=enabled";;
    *) unit="Environment=NVIDIA_CTK_DEBUG=1 NVIDIA_CTK_CDI_OUTPUT_FILE_PATH=$ROOT/unit.yaml";;
  esac
}
says() { SAID=${unit#"$1="}; }
"""


@pytest.mark.real
@pytest.mark.parametrize(
    "settings, name",
    [
        (None, "unit.yaml"),
        ("# NVIDIA_CTK_CDI_OUTPUT_FILE_PATH=/no.yaml\n", "unit.yaml"),
        ("NVIDIA_CTK_DEBUG=1\n NVIDIA_CTK_CDI_OUTPUT_FILE_PATH=ROOT/moved.yaml", "moved.yaml"),
        ("NVIDIA_CTK_CDI_OUTPUT_FILE_PATH='ROOT/quoted.json' \r\n", "quoted.json"),
    ],
)
def test_the_specification_of_the_toolkit_s_unit_is_looked_for_where_its_settings_say(
    tmp_path: Path, host_with: HostWith, settings: str | None, name: str
) -> None:
    (tmp_path / "sys/systemd/system").mkdir(parents=True)
    (tmp_path / "sys/systemd/system/nvidia-cdi-refresh.service").touch()
    if settings is not None:
        (tmp_path / "refresh.env").write_text(settings.replace("ROOT", str(tmp_path)))
    (tmp_path / name).write_text(f'{{"kind": "nvidia.com/gpu", "hostPath": "/lib/libcuda.so.{LOADED}"}}')
    part = f"{REFRESH_UNIT.replace('$ROOT', str(tmp_path))}{ToolkitFact.probe}".replace(
        "/etc/nvidia-container-toolkit/nvidia-cdi-refresh.env", f"{tmp_path}/refresh.env"
    ).replace("for folder in /etc /run", f"modules=/none\nfor folder in {tmp_path}/sys /run")
    done = subprocess.run(["sh", "-c", f"NL='\n'\n{part}"], capture_output=True, text=True, check=True)
    reading = parse_toolkit(done.stdout.splitlines())
    assert (reading.cdi_refresh, reading.cdi_output) == ("enabled", f"{tmp_path}/{name}"), done.stderr
    assert [item.path for item in reading.cdi if item.path.startswith(str(tmp_path))] == [f"{tmp_path}/{name}"]
    there = replace(GOOD.toolkit, cdi=(replace(REFRESHED, path=f"{tmp_path}/{name}"),), cdi_refresh="enabled",
                    cdi_output=f"{tmp_path}/{name}")  # fmt: skip
    assert commands(toolkit.specification, host_with(there), generate=True) == []
    (command,) = commands(toolkit.specification, host_with(replace(there, cdi=(REFRESHED,))), generate=True)
    assert f"target={tmp_path}/{name}" in command


@pytest.mark.parametrize(
    "settings, change, what",
    [
        ({}, {"link_rule": False}, "device links"),
        ({}, {"unlinked": ("/dev/nvidia0",)}, "device links"),
        ({}, {"packages": (*GOOD.toolkit.packages, ("nvidia-docker2", "2.13.0-1"))}, "nvidia-docker2"),
        ({"hold": True}, {}, "held packages"),
        ({"preset": "shared"}, {"config_text": "disable-require = false\n"}, "config.toml"),
        ({"preset": "shared"}, {"config_text": None}, "config.toml"),
        ({"cdi": "generate"}, {}, "CDI specification"),
        ({"cdi": "generate"}, {"cdi": (OLD,)}, "CDI specification"),
        ({"cdi": "generate"}, {"cdi": (OWN, replace(REFRESHED, driver_version=None))}, "CDI specification"),
    ],
)
def test_each_difference_is_one_finding_and_one_step(
    settings: dict[str, Any], change: dict[str, Any], what: str
) -> None:
    reading = replace(GOOD.toolkit, **change)
    items = found(settings, reading)
    assert list(items) == [what]
    assert items[what].finding_class is FindingClass.DRIFT and items[what].remedy
    migrating = settings_from({"driver": {"version": LOADED}, "toolkit": {**settings, "migrate": True}})
    (step,) = plan(migrating, replace(GOOD, toolkit=reading)).steps
    assert step.component == "toolkit" and not step.pending


def test_what_is_as_asked_is_no_finding() -> None:
    text = "accept-nvidia-visible-devices-envvar-when-unprivileged = false\n"
    text += "accept-nvidia-visible-devices-as-volume-mounts = true\n"
    reading = replace(HELD, config_text=text, cdi=(OWN,))
    assert found({"hold": True, "preset": "shared", "cdi": "generate"}, reading) == {}
    assert found({"device_links": False}, replace(GOOD.toolkit, link_rule=False, unlinked=("/dev/nvidia0",))) == {}
    assert found({}, replace(GOOD.toolkit, cdi=(replace(REFRESHED, driver_version="570.172.08"),))) == {}


def test_a_specification_waits_with_the_driver_for_the_reboot() -> None:
    node = replace(
        GOOD, driver=replace(GOOD.driver, loaded_version="570.172.08"), toolkit=replace(GOOD.toolkit, cdi=(OWN,))
    )
    asked = settings_from({"driver": {"version": LOADED}, "toolkit": {"cdi": "generate"}})
    (item,) = [item for item in judge(asked, node) if item.what == "CDI specification"]
    assert item.finding_class is FindingClass.REBOOT_PENDING


LEGACY = replace(GOOD.toolkit, packages=(*GOOD.toolkit.packages, ("nvidia-docker2", "2.13.0-1")))


def test_a_node_with_nvidia_docker2_is_refused_unless_it_may_be_migrated() -> None:
    node = replace(GOOD, toolkit=LEGACY)
    (refusal,) = refusals(settings_from({}), node.machine)
    assert "nvidia-docker2 2.13.0-1" in refusal.reason and "toolkit.migrate = True" in refusal.remedy
    assert refusals(settings_from({"toolkit": {"migrate": True}}), node.machine) == ()
    assert (
        refusals(settings_from({"toolkit": {"enabled": False}, "containerd": {"enabled": False}}), node.machine) == ()
    )


@pytest.mark.parametrize("toolkit", [{"hold": True}, {"migrate": True}])
def test_a_package_manager_that_cannot_do_it_is_said_beforehand(
    toolkit: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpunode.node.preflight.runtimes._HOLDING", ("dnf",))
    reasons = [
        item.reason for item in refusals(settings_from({"toolkit": toolkit}), replace(GOOD, toolkit=LEGACY).machine)
    ]
    assert any("with apt" in reason for reason in reasons)


@pytest.mark.parametrize(
    "version, tegra, refused, warned",
    [
        ("1.6.0", False, "1.7.0", True),
        ("1.7.0", False, None, True),
        ("1.10.0", True, "1.11.0", True),
        ("1.11.0", True, None, True),
        ("1.17.8", True, None, False),
    ],
)
def test_a_toolkit_below_a_stated_minimum_is_refused_and_one_with_a_known_hole_is_told(
    version: str, tegra: bool, refused: str | None, warned: bool
) -> None:
    machine = replace(GOOD, operating_system=replace(GOOD.operating_system, tegra=tegra)).machine
    settings = settings_from({
        "toolkit": {"version": version}, "driver": {"source": "present"}, "cuda": {"enabled": False},
    })  # fmt: skip
    reasons = [item.reason for item in refusals(settings, machine) if item.component == "toolkit"]
    assert [f"{refused} or newer" in reason for reason in reasons] == ([True] if refused else [])
    told = [item.source for item in cautions(settings, machine) if item.component == "toolkit"]
    assert any("CVE" in source for source in told) == warned


def test_nothing_is_done_to_a_node_that_is_as_desired(host_with: HostWith) -> None:
    text = "accept-nvidia-visible-devices-envvar-when-unprivileged = false\n"
    text += "accept-nvidia-visible-devices-as-volume-mounts = true\n"
    host = host_with(replace(HELD, config_text=text, cdi=(OWN,)))
    asked = asked_of(settings_from({"toolkit": {"preset": "shared"}}).toolkit)
    assert commands(toolkit.configuration, host, desired=asked) == []
    assert commands(toolkit.held, host, family="apt") == []
    assert commands(toolkit.released, host, family="apt", version="1.17.8", hold=True) == []
    assert commands(toolkit.specification, host, generate=True) == []
    assert commands(toolkit.device_links, host) == []
    assert (len(host.noops), host.refusals) == (5, [])


@pytest.mark.parametrize(
    "operation, arguments",
    [
        (toolkit.configuration, {"desired": {("a",): True}}),
        (toolkit.held, {"family": "apt"}),
        (toolkit.released, {"family": "apt", "version": None, "hold": False}),
        (toolkit.specification, {"generate": True}),
        (toolkit.device_links, {}),
    ],
)
def test_nothing_is_done_on_an_unknown_answer(host_with: HostWith, operation: Any, arguments: dict[str, Any]) -> None:
    host = host_with(Unknown("silence"))
    assert commands(operation, host, **arguments) == []
    assert "silence" in host.refusals[0]


def test_a_file_that_is_no_toml_is_left_as_it_is(host_with: HostWith) -> None:
    host = host_with(replace(GOOD.toolkit, config_text="= nonsense"))
    assert commands(toolkit.configuration, host, desired={("a",): True}) == []
    assert unnamed(host.refusals[0], "/etc/nvidia-container-runtime/config.toml", "TOML") == []


def test_a_mode_that_the_installed_toolkit_does_not_know_is_not_written(host_with: HostWith) -> None:
    asked = asked_of(settings_from({"toolkit": {"mode": "jit-cdi"}}).toolkit)
    assert commands(toolkit.configuration, host_with(GOOD.toolkit), desired=asked) == []
    host = host_with(GOOD.toolkit)
    commands(toolkit.configuration, host, desired=asked)
    assert unnamed(host.refusals[0], "jit-cdi", "1.18.0", "1.17.8") == []
    (command,) = commands(toolkit.configuration, host_with(replace(GOOD.toolkit, version="1.20.0")), desired=asked)
    assert "config.toml" in command
    # Every mode that gpunode takes is one that the newest toolkit knows.
    assert set(get_args(get_args(ToolkitSettings.model_fields["mode"].annotation)[0])) <= set(modes("1.20.0"))


def test_only_what_gpunode_held_is_let_go(host_with: HostWith) -> None:
    stranger = replace(HELD, hold_text=None)
    assert commands(toolkit.released, host_with(stranger), family="apt", version=None, hold=False) == []
    (let_go, gone) = commands(toolkit.released, host_with(HELD), family="apt", version=None, hold=False)
    assert all(name in let_go for name in PACKAGES) and "rm -f" in gone
    # What is to move is let go, what is not stays held.
    assert commands(toolkit.released, host_with(HELD), family="apt", version="1.18.0", hold=True)
    assert commands(toolkit.released, host_with(HELD), family="apt", version="1.17", hold=True) == []


def test_with_dnf_the_lock_is_a_part_of_versionlock_s_list_beside_the_driver_s(host_with: HostWith) -> None:
    others = "# gpunode: locked with the driver\nnvidia-open-3:580.95.05-1.el9.*\n# gpunode: end\nkernel-0:5.14*\n"
    host = host_with(replace(GOOD.toolkit, hold_text=others))
    command, note = commands(toolkit.held, host, family="dnf")
    assert "checkpoint=/var/lib/gpunode/transactions/driver" in note and f"gpunode {LOCKLIST}" in note
    text = base64.b64decode(command.split(" <<< ")[1]).decode()
    assert text.startswith(others) and "\nnvidia-container-toolkit-0:1.17.8-1.*\n" in text
    held = host_with(replace(GOOD.toolkit, hold_text=text, held=PACKAGES))
    assert commands(toolkit.held, held, family="dnf") == []
    command, _ = commands(toolkit.released, held, family="dnf", version=None, hold=False)
    assert base64.b64decode(command.split(" <<< ")[1]).decode() == others
    assert commands(toolkit.held, host_with(GOOD.toolkit), family="dnf") == []


def test_a_specification_is_made_by_the_toolkit_s_own_unit_where_it_has_one(host_with: HostWith) -> None:
    (by_us,) = commands(toolkit.specification, host_with(replace(GOOD.toolkit, cdi=(OLD,))), generate=True)
    assert "target=/etc/cdi/nvidia.yaml" in by_us and "nvidia-ctk cdi generate" in by_us
    there = replace(GOOD.toolkit, cdi=(OWN, REFRESHED), cdi_refresh="enabled")
    # Ours beside the toolkit's would only grow old.
    (by_unit,) = commands(toolkit.specification, host_with(there), generate=True)
    assert "restart nvidia-cdi-refresh.service" in by_unit and "stale=/etc/cdi/nvidia.yaml" in by_unit
    alone = replace(there, cdi=(REFRESHED,))
    assert commands(toolkit.specification, host_with(alone), generate=True) == []
    assert commands(toolkit.specification, host_with(replace(alone, cdi_refresh="disabled")), generate=True)


def test_a_masked_unit_of_the_toolkit_is_named_as_that(host_with: HostWith) -> None:
    host = host_with(replace(GOOD.toolkit, cdi=(REFRESHED,), cdi_refresh="masked"))
    assert commands(toolkit.specification, host, generate=True) == []
    assert "is masked" in host.refusals[0] and "systemctl unmask nvidia-cdi-refresh.path" in host.refusals[0]


def test_a_specification_waits_until_there_is_a_driver_that_it_could_be_of(host_with: HostWith) -> None:
    for driver in ({"loaded_version": None}, {"loaded_version": "570.172.08"}):
        host = host_with(replace(GOOD.toolkit, cdi=(OWN,)), **driver)
        assert (commands(toolkit.specification, host, generate=True), host.refusals) == ([], [])


def test_only_gpunode_s_own_specification_is_removed(host_with: HostWith) -> None:
    assert commands(toolkit.specification, host_with(replace(GOOD.toolkit, cdi=(REFRESHED,))), generate=False) == []
    (command,) = commands(toolkit.specification, host_with(replace(GOOD.toolkit, cdi=(OWN, REFRESHED))), generate=False)
    assert "/etc/cdi/nvidia.yaml" in command and "/var/run" not in command


def _generated(root: Path, made: str, there: str | None, read: bool = True) -> subprocess.CompletedProcess[str]:
    """Run the script that makes a specification, with an nvidia-ctk that makes one of the driver `made`.

    read: whether what is there was read, and is known for stale
    """
    (root / "bin").mkdir()
    program = root / "bin/nvidia-ctk"
    # As the real one does for GPUs with coherent memory, it writes a second file beside the one that is named.
    program.write_text(
        f"#!/bin/sh\noutput=${{3#--output=}}\nls {root}/cdi > {root}/meanwhile 2>&1\n"
        f"printf 'kind: nvidia.com/gpu\\nhostPath: /lib/libcuda.so.{made}\\n' > \"$output\"\n"
        "printf 'kind: nvidia.com/gpu.coherent\\n' > \"${output%.yaml}.coherent.yaml\"\n"
        f"ls {root}/cdi >> {root}/meanwhile\n"
    )
    program.chmod(0o755)
    target = root / "cdi/nvidia.yaml"
    if there is not None:
        target.parent.mkdir()
        target.write_text(there)
    return subprocess.run(
        ["sh", "-eu", "-c", toolkit._GENERATE], capture_output=True, text=True, check=False,
        env={
            "PATH": f"{root}/bin:/usr/bin:/bin", "target": str(target), "own": "yes", "version": LOADED,
            "mark": CDI_MARK, "stale": str(target) if there is not None and read else "",
        },
    )  # fmt: skip


@pytest.mark.real
@pytest.mark.parametrize("there", [None, "kind: mine\n", f"{CDI_MARK}\nkind: ours\n"])
def test_a_specification_takes_the_place_of_the_old_one_and_a_stranger_s_is_kept_aside(
    tmp_path: Path, there: str | None
) -> None:
    done = _generated(tmp_path, LOADED, there)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "cdi/nvidia.yaml").read_text().startswith(f"{CDI_MARK}\nkind: nvidia.com/gpu\n")
    assert set((tmp_path / "meanwhile").read_text().split()) <= {"nvidia.yaml"}
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".gpunode-cdi")]
    beside = sorted(path.name for path in (tmp_path / "cdi").iterdir())
    assert beside == ["nvidia.yaml", *(["nvidia.yaml.gpunode-before"] if there == "kind: mine\n" else [])]


@pytest.mark.real
def test_a_specification_of_another_driver_does_not_take_the_place_of_what_is_there(tmp_path: Path) -> None:
    done = _generated(tmp_path, "535.261.03", "kind: mine\n")
    assert done.returncode == 1 and f"libcuda.so.{LOADED}" in done.stderr
    assert (tmp_path / "cdi/nvidia.yaml").read_text() == "kind: mine\n"
    assert [path.name for path in (tmp_path / "cdi").iterdir()] == ["nvidia.yaml"]


@pytest.mark.real
def test_a_specification_that_somebody_made_since_it_was_looked_for_stays(tmp_path: Path) -> None:
    done = _generated(tmp_path, LOADED, "kind: mine\n", read=False)
    assert done.returncode == 1 and "somebody wrote" in done.stderr
    assert (tmp_path / "cdi/nvidia.yaml").read_text() == "kind: mine\n"
    assert [path.name for path in (tmp_path / "cdi").iterdir()] == ["nvidia.yaml"]
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".gpunode-cdi")]


def test_an_empty_specification_is_nobody_s_and_is_replaced(tmp_path: Path) -> None:
    done = _generated(tmp_path, LOADED, "", read=False)
    assert done.returncode == 0, done.stderr
    assert "nvidia.com/gpu" in (tmp_path / "cdi/nvidia.yaml").read_text()


def test_what_the_toolkit_replaces_goes_in_the_transaction_in_which_it_comes(host: Host) -> None:
    there = InstalledPackages((("nvidia-container-toolkit", "1.16.2-1"), ("nvidia-docker2", "2.13.0-1")))
    wanted = dict.fromkeys(PACKAGES, "1.17.8")
    host.readings[DebPackagesFact] = there
    (command,) = commands(packages.installed, host, family="apt", desired=wanted, replaces=("nvidia-docker2",))
    assert "nvidia-docker2-" in command and "nvidia-container-toolkit=1.17.8" in command
    whole = InstalledPackages((*((name, "1.17.8-1") for name in PACKAGES), ("nvidia-docker2", "2.13.0-1")))
    host.readings[DebPackagesFact] = whole
    assert commands(packages.installed, host, family="apt", desired=wanted) == []
    assert commands(packages.installed, host, family="apt", desired=wanted, replaces=("nvidia-docker2",))
