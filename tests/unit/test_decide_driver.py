"""The driver is decided once: on any node, drift, plan, rollout and run say the same, and the steps end in no step."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyinfra.context import ctx_host

from gpunode.base.comparison import BY_HAND
from gpunode.base.decision import Decision, Step, bad
from gpunode.base.findings import Finding, FindingClass, NodeReport
from gpunode.components.driver.coming import lost_files
from gpunode.components.driver.loading import BLOCKED, Act, step_of
from gpunode.components.driver.services import FORMER, MODULE
from gpunode.components.driver.state import DriverState, Service
from gpunode.facts.driver import Driver as DriverFact
from gpunode.facts.system import Boot as BootFact
from gpunode.fleet.rollout.choice import left_out
from gpunode.node import Node
from gpunode.node.components import decisions
from gpunode.node.plan import plan
from gpunode.node.verdict import judge
from gpunode.operations import driver, reboot
from gpunode.packages.driver_packages.installed import DriverPackages
from gpunode.packages.driver_packages.names import belongs
from gpunode.settings import Settings, settings_from
from gpunode.system.boot import Boot, Kernel
from gpunode.system.gpu import Gpus
from gpunode.system.operating_system import OperatingSystem
from gpunode.system.pci import PciGpus
from tests.support.messages import unnamed
from tests.support.simulated_host import Host, commands
from tests.support.verify import GOOD, H100

pytestmark = pytest.mark.pure

VERSION, OLD = "580.95.05", "570.172.08"
RUNS, NEXT = "6.1.0-40-amd64", "6.1.0-41-amd64"
UBUNTU = OperatingSystem("ubuntu", "24.04", "noble", ("debian",), "Ubuntu 24.04", "x86_64", "6.8.0", False)
OPEN, PROPRIETARY = ("Dual MIT/GPL", "open"), ("NVIDIA", "proprietary")
FABRIC = ("nvidia-fabricmanager", f"{VERSION}-1")
VERSIONS = st.sampled_from([VERSION, VERSION, VERSION, OLD, None])


@st.composite
def drivers(draw: Any) -> DriverState:
    module, loaded = draw(VERSIONS), draw(VERSIONS)
    runfile = draw(st.sampled_from([False, False, False, True]))
    packages = draw(st.sampled_from([(), (("nvidia-open", f"{VERSION}-1"),), (("nvlsm", "1"), FABRIC)]))
    uvm = loaded is not None and draw(st.booleans())
    return replace(
        GOOD.driver,
        packages=packages,
        pinned=draw(st.sampled_from([(), (*packages, ("nvidia-persistenced", f"{VERSION}-1"))])),
        module_version=module,
        module_license=draw(st.sampled_from([OPEN, OPEN, PROPRIETARY]))[0] if module else None,
        loaded_version=loaded,
        loaded_flavour=draw(st.sampled_from(["open", "open", "proprietary"])) if loaded else None,
        library_version=draw(VERSIONS),
        uvm_loaded=uvm,
        uvm_without_device=uvm and draw(st.booleans()),
        runfile=runfile,
        dkms=runfile and draw(st.booleans()),
        held=draw(st.sampled_from([(), tuple(name for name, _ in packages)])),
        kernels=draw(st.sampled_from([(), ("linux-image-amd64",)])),
        services=draw(
            st.sampled_from([(), (Service("nvidia-persistenced", False, True),), (Service(FABRIC[0], True, True),)])
        ),
        nouveau_bound=loaded is None and draw(st.booleans()),
        parameters=draw(st.sampled_from([(), (("EnableMSI", "1"),)])) if loaded else (),
        rdma=draw(st.booleans()),
        peermem=draw(st.sampled_from([None, None, MODULE, FORMER])) if loaded else None,
    )


KERNELS = st.builds(
    Kernel,
    release=st.sampled_from([RUNS, NEXT]),
    headers=st.booleans(),
    module_version=VERSIONS,
    module_signer=st.sampled_from([None, "somebody"]),
    initramfs_written=st.just(5.0),
    initramfs_nouveau=st.sampled_from([False, False, True, None]),
)
BOOTS = st.one_of(
    st.just(GOOD.boot),
    st.builds(
        lambda kernel, **more: Boot(RUNS, kernel.release, "grub", (kernel,), **more),
        kernel=KERNELS,
        secure_boot=st.booleans(),
        blacklist_written=st.sampled_from([None, 4.0]),
        build_tools=st.sampled_from([(), ("gcc", "make", "dkms")]),
    ),
)
PCI = st.builds(
    PciGpus,
    gpus=st.sampled_from([(H100,), (H100,), (H100,), ()]),
    nvswitches=st.sampled_from([0, 0, 4]),
    switch_managers=st.sampled_from([0, 0, 2]),
    umad_loaded=st.booleans(),
)
GPUS = st.sampled_from(
    [GOOD.gpus, GOOD.gpus, Gpus("ok", 0, None, ()), Gpus("lost", 15, None, ()), Gpus("no driver", 9, None, ())]
)


@st.composite
def nodes(draw: Any) -> Node:
    boot, state = draw(BOOTS), draw(drivers())
    kernel = boot.next_kernel
    if kernel is not None and kernel.release == RUNS:
        # It is one file.
        boot = replace(boot, kernels=(replace(kernel, module_version=state.module_version),))
    system = draw(st.sampled_from([GOOD.operating_system, UBUNTU]))
    made = replace(
        GOOD, driver=state.with_next_kernel(boot), boot=boot, pci=draw(PCI), gpus=draw(GPUS), operating_system=system
    )
    return made if made.driver.loaded_version else replace(made, gpus=Gpus("no driver", 9, None, ()))


DRIVER = st.fixed_dictionaries({
    "source": st.sampled_from(["cuda-repository", "distribution", "runfile", "present", "absent"]),
    "flavour": st.sampled_from(["auto", "open", "proprietary"]),
    "hold": st.booleans(),
    "hold_kernel": st.booleans(),
    "dkms": st.booleans(),
    "persistenced": st.booleans(),
    "peermem": st.booleans(),
    "kernel_headers": st.sampled_from(["install", "require"]),
    "module_parameters": st.sampled_from([{}, {"NVreg_EnableMSI": "0"}]),
})  # fmt: skip
ALLOW = st.sampled_from(["nothing", "restart", "reboot"])


_WITHOUT: dict[str, Any] = {name: {"enabled": False} for name in ("cuda", "toolkit", "containerd")}


def settings(asked: dict[str, Any], allow: str) -> Settings:
    fixed = {
        "version": VERSION, "runfile_sha256": "a" * 64, "migrate": True, "allow_branch_change": True,
        "without_gpu": "install",
    }  # fmt: skip
    asked = {"source": "absent"} if asked["source"] == "absent" else {**asked, **fixed}
    return settings_from({"driver": asked, "disruption": {"allow": allow}, **_WITHOUT})


def _bad(asked: Settings, node: Node) -> list[Finding]:
    found = [item for item in judge(asked, node) if item.finding_class is not FindingClass.OK]
    return [item for item in found if item.component == "driver"]


def _is_a_person_s(item: Finding) -> bool:
    by_person = left_out(NodeReport("gpu-1", (item,)), everyone=False)
    return by_person is not None and by_person.finding_class is item.finding_class


@given(node=nodes(), asked=DRIVER, allow=ALLOW)
def test_drift_plan_and_rollout_say_the_same(node: Node, asked: dict[str, Any], allow: str) -> None:
    desired = settings(asked, allow)
    decision, found = decisions(desired, node)["driver"], _bad(desired, node)
    settled = {item.what for step in decision.steps for item in step.settles}
    # What a step that waits settles is no run's to mend until the settings allow more.
    by_a_run = {item.what for step in decision.steps if step.waits is None for item in step.settles}
    assert settled <= {item.what for item in found}
    for item in found:
        if item.what not in settled:
            assert _is_a_person_s(item), item
        elif item.what in by_a_run and item.finding_class is not FindingClass.ERROR:
            assert not _is_a_person_s(item), item
    told = plan(desired, node)
    if told.refusals:
        return
    steps = [step for step in told.steps if step.component == "driver"]
    promised = [(step.action, step.waits is not None) for step in decision.steps]
    assert [(step.action, step.pending) for step in steps[: len(promised)]] == promised
    assert all(step.pending for step in steps[len(promised) :])


def _brings(decision: Decision[Any]) -> bool:
    return any(step.action.startswith(("install driver", "change to driver")) for step in decision.steps)


@given(node=nodes(), asked=DRIVER)
def test_the_operations_load_and_boot_where_the_decision_says_so(node: Node, asked: dict[str, Any]) -> None:
    desired = settings(asked, "reboot")
    decision, absent = decisions(desired, node)["driver"], desired.driver.removes
    # With another driver to come, they decide by that one.
    if not node.has_gpu or _brings(decision) or (not absent and node.driver.module_version is None):
        return
    host = Host({DriverFact: node.driver, BootFact: node.boot})
    parameters = desired.driver.module_parameters if desired.driver.installs else {}
    with ctx_host.use(host):
        given_commands = [] if absent else commands(driver.module_loaded, host)
        host.noops.clear()
        commands(reboot.rebooted, host, allowed=False, timeout=1, parameters=parameters, absent=absent)
    assert host.refusals == []
    assert (given_commands != []) == (step_of(decision, Act.LOAD) is not None)
    assert host.noops[0].startswith("reboot pending") == (step_of(decision, Act.BOOT) is not None)


def _loaded(node: Node) -> Node:
    state = node.driver
    loaded = replace(
        state, loaded_version=state.module_version, loaded_flavour=state.module_flavour, uvm_loaded=True,
        uvm_without_device=False, parameters=(), nouveau_bound=False, waits_for_kernel=None,
    )  # fmt: skip
    return replace(node, driver=loaded, gpus=GOOD.gpus if state.module_version else Gpus("no driver", 9, None, ()))


def _kernel(node: Node, **changes: Any) -> Node:
    return replace(node, boot=replace(node.boot, kernels=tuple(replace(each, **changes) for each in node.boot.kernels)))


def _packages(step: Step[Any]) -> list[str]:
    return [name.split()[0] for name in step.packages]


def _installed(node: Node, step: Step[Any], asked: Settings) -> Node:
    by_runfile = " by its runfile" in step.action
    flavour = OPEN if "open kernel module" in step.action else PROPRIETARY
    state = replace(
        node.driver, module_version=VERSION, module_license=flavour[0], library_version=VERSION, runfile=by_runfile,
        packages=() if by_runfile else tuple((name, f"{VERSION}-1") for name in _packages(step) if belongs(name)),
        # A run keeps what is there then.
        dkms=by_runfile and asked.driver.dkms, waits_for_kernel=None, pinned=(),
    )  # fmt: skip
    answers = GOOD.gpus if state.loaded_version == VERSION else node.gpus
    return _kernel(replace(node, driver=state, gpus=answers), module_version=VERSION)


def _run(node: Node, name: str) -> Node:
    services = (*(each for each in node.driver.services if each.name != name), Service(name, True, True))
    return replace(node, driver=replace(node.driver, services=services))


def _with(node: Node, **changes: Any) -> Node:
    return replace(node, driver=replace(node.driver, **changes))


def _apply(node: Node, step: Step[Any], asked: Settings) -> Node:
    """Return the node as a run leaves it that carries out one step."""
    state, action = node.driver, step.action
    match action.split()[:3]:
        case ["install", "again", *_]:
            back = tuple((name, f"{state.module_version}-1") for name in step.packages)
            return _with(node, packages=(*state.packages, *back))
        case ["install" | "change", *_] if "kernel module" in action:
            return _installed(node, step, asked)
        case ["remove", "the", "driver"] if "kept for the way back" not in action:
            return _with(node, packages=(), runfile=False, module_version=None, loaded_version=None)
        case ["boot", "the", "node"] if "without the driver" in action:
            return _with(node, loaded_version=None)
        case ["boot", "the", _]:
            # What modules-load.d names comes with it.
            return _with(_loaded(node), peermem=MODULE if asked.driver.peermem and state.rdma else None)
        case ["load", "the", "kernel"]:
            return _loaded(node)
        case ["load", "nvidia_peermem,", _]:
            return _with(node, peermem=MODULE)
        case ["load", "nvidia_uvm"]:
            return _with(node, uvm_loaded=True)
        case ["make", "/dev/nvidia-uvm"]:
            return _with(node, uvm_without_device=False)
        case ["load", "ib_umad,", _]:
            return replace(node, pci=replace(node.pci, umad_loaded=True))
        case ["hold", *_]:
            return _with(node, held=(*(name for name, _ in state.packages), *state.kernels))
        case ["keep", "nouveau", "out,"]:
            return replace(node, boot=replace(node.boot, blacklist_written=4.0))
        case ["make", "the", "initial"]:
            return _kernel(node, initramfs_nouveau=False)
        case ["run", name, *_]:
            return _run(node, name.rstrip(","))
        case ["install", "fabric", "manager"]:
            others = tuple(each for each in state.packages if each[0] != FABRIC[0])
            return _with(node, packages=(*others, (FABRIC[0], f"{state.module_version}-1")))
        case ["install", "the", "NVLink"]:
            return _with(node, packages=(*state.packages, ("nvlsm", "1")))
        case ["install", "the", "modules"] | ["build", "the", "module"]:
            return _kernel(node, module_version=state.module_version)
        case ["install", name, *_] if "headers" in name:
            return _kernel(node, headers=True)
        case ["install" | "remove", *_]:
            return node
    raise AssertionError(action)


@given(node=nodes(), asked=DRIVER)
def test_carried_out_the_steps_leave_no_step(node: Node, asked: dict[str, Any]) -> None:
    desired = settings(asked, "reboot")
    # What a repository has of this branch, no made-up state can tell.
    if plan(desired, node).refusals or node.operating_system is UBUNTU:
        return
    decision = decisions(desired, node)["driver"]
    if decision.refusal is not None:
        # Nothing brings a module that is lost.
        assert node.driver.module_version is None
        return
    assert all(step.waits is None for step in decision.steps)
    for step in decision.steps:
        node = _apply(node, step, desired)
    after = decisions(desired, node)["driver"]
    # The first driver is judged by what serves it when it is there.
    for step in after.steps:
        node = _apply(node, step, desired)
    assert decisions(desired, node)["driver"].steps == ()
    assert all(_is_a_person_s(item) or item.finding_class is FindingClass.NOT_KNOWN for item in _bad(desired, node))


KERNEL = Kernel(NEXT, headers=True, module_version=VERSION)
BOOT = Boot(RUNS, NEXT, "grub", (KERNEL,), blacklist_written=4.0, build_tools=("gcc", "make"))
BY_RUNFILE = replace(GOOD.driver, runfile=True, dkms=True)
LACKS = replace(BOOT, kernels=(replace(KERNEL, module_version=None),))


@pytest.mark.parametrize(
    ("asked", "parts", "what"),
    [
        ("present", {"driver": replace(GOOD.driver, library_version=OLD)}, "library"),
        ("cuda-repository", {"boot": LACKS}, "next boot"),
        ("cuda-repository", {"gpus": Gpus("ok", 0, None, ()), "driver": GOOD.driver}, None),
        ("runfile", {"driver": BY_RUNFILE, "boot": LACKS}, None),
    ],
)
def test_a_rollout_takes_no_node_for_what_no_run_mends(asked: str, parts: dict[str, Any], what: str | None) -> None:
    report = NodeReport("gpu-1", judge(settings({"source": asked}, "reboot"), replace(GOOD, **parts)))
    left = left_out(report, everyone=False)
    assert (left is None) is (what is None)
    assert left is None or f"driver: {what}" in left.reason


LINE = "/etc/modprobe.d/site.conf:2:alias nvidia off"
VFIO = f"vfio-pci has the GPU {GOOD.pci.gpus[0].address}"


@pytest.mark.parametrize(
    ("parts", "refused", "said"),
    [
        ({"blockers": (LINE,), "loaded_version": None}, True, LINE),
        # Told before the boot; what is loaded works.
        ({"blockers": (LINE,)}, False, LINE),
        ({"blockers": (VFIO,), "loaded_version": None}, True, VFIO),
        ({"blockers": (VFIO,)}, False, VFIO),
        ({"blockers": (VFIO,), "loaded_version": None, "second": True}, False, VFIO),
    ],
)
def test_what_keeps_the_module_from_loading_is_named_and_stops_only_a_run_that_would_load_it(
    parts: dict[str, Any], refused: bool, said: str
) -> None:
    gpus = GOOD.pci.gpus * (2 if parts.pop("second", False) else 1)
    node = replace(GOOD, driver=replace(GOOD.driver, **parts), pci=replace(GOOD.pci, gpus=gpus))
    decision = decisions(settings({"source": "cuda-repository"}, "reboot"), node)["driver"]
    assert (decision.refusal is not None) is refused and said in str(decision.refusal or said)
    (item,) = [item for item in decision.findings if item.code == BLOCKED.code]
    assert item.by_person and said in str(item.actual) and item.remedy != BY_HAND
    assert not refused or not any(step.waits is None and step.change is Act.LOAD for step in decision.steps)


@pytest.mark.parametrize(
    ("loaded", "library", "kernels", "to_be"),
    [
        (VERSION, VERSION, (), VERSION),
        (VERSION, OLD, (), VERSION),
        (None, VERSION, (), None),
        # The module of a kernel on this machine's disk is lost, though it is still loaded.
        (VERSION, VERSION, (replace(KERNEL, module_version=None),), None),
    ],
)
def test_where_kernel_and_modules_are_the_machine_s_maker_s_the_library_is_judged_by_the_loaded_one(
    loaded: str | None, library: str, kernels: tuple[Kernel, ...], to_be: str | None
) -> None:
    # As on a virtual machine of a cloud, whose disk has neither: modinfo knows no module, and no kernel boots next.
    state = replace(
        GOOD.driver, module_version=None, module_license=None, loaded_version=loaded, library_version=library
    )
    boot = replace(GOOD.boot, next_release=NEXT if kernels else None, kernels=kernels)
    judged = judge(settings_from({"driver": {"source": "present"}}), replace(GOOD, driver=state, boot=boot))
    found = {item.what: item for item in judged}
    item = found["library"]
    assert (item.actual, bool(bad(item))) == (library, library != to_be)
    assert to_be is None or item.desired == to_be
    assert bool(bad(found["loaded module"])) == (loaded is None)


WHOLE = tuple((name, f"{VERSION}-1") for name in ("nvidia-open", "nvidia-driver-cuda"))


@pytest.mark.parametrize(
    ("packages", "library_version", "by_a_run"),
    [
        (WHOLE, None, True),
        # Its package is of another version: to install that again brings nothing.
        (WHOLE, OLD, False),
        ((), None, True),
        ((("nvidia-open", f"{OLD}-1"),), None, True),
        ((*WHOLE, ("cuda-drivers", f"{OLD}-1")), None, True),
    ],
)
def test_a_run_brings_back_a_library_that_is_lost_and_none_that_is_of_another_version(
    packages: tuple[tuple[str, str], ...], library_version: str | None, by_a_run: bool
) -> None:
    held = tuple(name for name, _ in packages)
    state = replace(GOOD.driver, packages=packages, held=held, library_version=library_version)
    node, desired = replace(GOOD, driver=state), settings({"source": "cuda-repository"}, "restart")
    (step, *_) = plan(desired, node).steps
    assert step.pending is not by_a_run
    library = next(item for item in judge(desired, node) if item.what == "library")
    assert (library.remedy == "run deploys/gpu_node.py again") is by_a_run
    # What the operation goes by: it finds nothing to install.
    assert bool(lost_files(state)) == (library_version is None)
    assert by_a_run or DriverPackages(packages).missing({"nvidia-open": VERSION}) == ()
    assert by_a_run or unnamed(f"{library.remedy} {library.cause}", "apt-get install --reinstall", "nvidia-open") == []


@pytest.mark.parametrize("status", ["no library", "mismatch"])
@pytest.mark.parametrize(("library", "verdict"), [(None, "can be done"), (OLD, "would fail")])
def test_gpus_answer_again_with_a_library_that_a_run_brings_back(
    status: str, library: str | None, verdict: str
) -> None:
    driver = replace(GOOD.driver, packages=WHOLE, held=tuple(name for name, _ in WHOLE), library_version=library)
    node = replace(GOOD, driver=driver, gpus=Gpus(status, 12, "no NVML", ()))
    assert plan(settings({"source": "cuda-repository"}, "restart"), node).verdict == verdict


@pytest.mark.parametrize(
    ("gpus", "cause"),
    [
        (Gpus("absent", None, "nvidia-smi is not installed", ()), "nvidia-smi"),
        (Gpus("no library", 12, "couldn't find libnvidia-ml.so", ()), "libnvidia-ml"),
    ],
)
def test_a_program_or_library_that_is_gone_is_no_gpu_that_is_not_driven(gpus: Gpus, cause: str) -> None:
    state = replace(GOOD.driver, packages=WHOLE, held=tuple(name for name, _ in WHOLE))
    node = replace(GOOD, driver=state, gpus=gpus)
    desired = settings({"source": "cuda-repository"}, "restart")
    (found,) = _bad(desired, node)
    assert found.what == "GPUs by nvidia-smi" and unnamed(found.cause, cause) == []
    assert found.by_person
