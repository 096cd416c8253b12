"""Is the driver the one that is asked for, on disk and loaded, held, and served by its daemons?"""

from __future__ import annotations

from collections.abc import Iterator

from gpunode import versions
from gpunode.base.comparison import RUN, compared
from gpunode.base.subject import Subject
from gpunode.disturbance import Disturbance
from gpunode.driver_packages import holds_kernels
from gpunode.findings import Finding, FindingClass
from gpunode.node import Node
from gpunode.preflight import chosen_flavour
from gpunode.settings import Settings
from gpunode.verify.gpus import gpus
from gpunode.verify.next_boot import next_boot


def driver(settings: Settings, node: Node) -> Iterator[Finding]:
    """Judge the driver; what only a new boot can show is not asked for while one is pending."""
    asked, driver = settings.driver, node.driver
    yield from _installed_by(settings, node)
    rule = asked.version or asked.branch
    on_disk = driver.module_version
    has_gpu = node.machine.has_gpu
    # Without GPU and kernel (an image that is being made) there is nothing that a module could be for.
    image = not has_gpu and on_disk is None and node.boot.next_kernel is None
    if rule is not None and not image:
        yield compared(
            "driver", Subject.MODULE_ON_DISK, on_disk, rule, on_disk is not None and versions.in_branch(on_disk, rule)
        )
    if not has_gpu:
        yield Finding(
            "driver", FindingClass.UNSUPPORTED, Subject.GPU, "no GPU", "an NVIDIA GPU on the PCI bus",
            cause="the driver cannot be loaded, nor its service be judged, without one",
            remedy="boot this system on a machine with a GPU, and run again",
        )  # fmt: skip
    elif driver.reboot_pending:
        cause = "the driver was changed while the old module was loaded"
        if driver.waits_for_kernel:
            cause = f"kernel {node.boot.running} runs, for which there is no module on disk"
        yield Finding(
            "driver", FindingClass.REBOOT_PENDING, Subject.LOADED_MODULE, driver.runs, driver.to_come, cause=cause,
            remedy="drain and reboot the node", disturbs=Disturbance.reboot,
        )  # fmt: skip
    else:
        yield compared(
            "driver", Subject.LOADED_MODULE, driver.loaded_version, rule or driver.module_version,
            driver.loaded_version is not None and (rule is None or versions.in_branch(driver.loaded_version, rule)),
            # A module that is not loaded yet comes without a boot; one that is loaded goes by a boot alone.
            disturbs=Disturbance.nothing if driver.loaded_version is None else Disturbance.reboot,
        )  # fmt: skip
        yield from _parameters(settings, node)
    flavour = chosen_flavour(settings, node.pci.gpus, node.operating_system)
    loaded_flavour = driver.loaded_flavour or driver.module_flavour
    # Where any flavour will do and gpunode did not install it, the one that is there is right.
    chosen = asked.flavour != "auto" or asked.source != "present"
    if chosen and not driver.reboot_pending and loaded_flavour is not None:
        yield compared(
            "driver", Subject.FLAVOUR, loaded_flavour, flavour, loaded_flavour == flavour,
            disturbs=Disturbance.nothing if driver.loaded_version is None else Disturbance.reboot,
        )  # fmt: skip
    together = driver.library_version is not None and driver.library_version == on_disk
    if image and driver.library_version is not None and rule is not None:
        together = versions.in_branch(driver.library_version, rule)
    yield compared(
        "driver", Subject.LIBRARY, driver.library_version, rule if image else on_disk, together,
        cause="an upgrade moved one package and not the other",
    )  # fmt: skip
    if has_gpu and not driver.reboot_pending:
        if driver.loaded_version is not None:
            yield compared(
                "driver", Subject.UVM, "loaded" if driver.uvm_loaded else None, "loaded", driver.uvm_loaded,
                cause="CUDA does not start without it",
            )  # fmt: skip
        yield from gpus(node)
    if asked.source != "present":
        yield from _held(settings, node)
    if has_gpu:
        yield from _services(settings, node)
    yield from next_boot(node)


def _parameters(settings: Settings, node: Node) -> Iterator[Finding]:
    """Judge whether the loaded module goes by the parameters that are asked for, as far as it tells."""
    asked = settings.driver.module_parameters
    if settings.driver.source == "present" or not (others := node.driver.other_parameters(asked)):
        return
    names = [other.partition("=")[0] for other in others]
    yield Finding(
        "driver", FindingClass.REBOOT_PENDING, Subject.PARAMETERS,
        ", ".join(others), ", ".join(f"{name}={asked[name]}" for name in names),
        cause="they were changed after the module was loaded",
        remedy="drain and reboot the node", disturbs=Disturbance.reboot,
    )  # fmt: skip


def _installed_by(settings: Settings, node: Node) -> Iterator[Finding]:
    """Judge by which way the driver came, where a runfile's is asked for or there, and whether DKMS will rebuild it."""
    asked, driver = settings.driver, node.driver
    if asked.source == "present" or (asked.source != "runfile" and not driver.runfile):
        return
    ways = driver.ways
    wanted = "runfile" if asked.source == "runfile" else "packages"
    yield compared(
        "driver", Subject.INSTALLED_BY, " and ".join(ways) or None, wanted, ways == (wanted,),
        remedy=RUN if asked.migrate or not ways else f"set driver.migrate = True and {RUN}",
        cause="a runfile and packages overwrite each other's files" if len(ways) > 1 else None,
    )  # fmt: skip
    if asked.source == "runfile" and driver.runfile:
        found, dkms = ("registered" if each else "not registered" for each in (driver.dkms, asked.dkms))
        yield compared(
            "driver", Subject.DKMS, found, dkms, found == dkms,
            cause="without DKMS no new kernel gets the module; with it every one does",
        )  # fmt: skip


def _held(settings: Settings, node: Node) -> Iterator[Finding]:
    """Judge whether apt keeps the driver's packages as they are, where the settings ask for it."""
    asked, driver = settings.driver, node.driver
    if not asked.hold:
        return
    kernels = driver.kernels if holds_kernels(settings, node.operating_system, node.boot) else ()
    wanted = [*(name for name, _ in driver.packages), *kernels]
    loose = [name for name in wanted if name not in driver.held]
    yield compared(
        "driver", Subject.HELD, f"not {', '.join(loose)}" if loose else "all", "all", not loose,
        cause="the next upgrade of the system's packages would move the driver under the loaded module",
    )  # fmt: skip


def _services(settings: Settings, node: Node) -> Iterator[Finding]:
    """Judge fabric manager where there are NVSwitches, and the persistence daemon where its unit is."""
    driver = node.driver
    if node.pci.fabric and driver.module_version is not None:
        there = driver.fabric_managers
        yield compared(
            "driver", Subject.FABRIC_MANAGER, ", ".join(there) or None, driver.module_version,
            bool(there) and all(versions.same(version, driver.module_version) for version in there),
            cause="CUDA does not start (error 802) with a fabric manager of another version than the driver",
            disturbs=Disturbance.restart,
        )  # fmt: skip
        yield _service(node, "nvidia-fabricmanager")
    if node.pci.switch_managers and driver.module_version is not None:
        manager = dict(driver.packages).get("nvlsm")
        yield compared(
            "driver", Subject.SUBNET_MANAGER, manager, "any version", manager is not None,
            cause="fabric manager does not start without nvlsm on a board of NVLink 5",
        )  # fmt: skip
        umad = node.pci.umad_loaded
        yield compared(
            "driver", Subject.UMAD, "loaded" if umad else None, "loaded", umad,
            cause="fabric manager reaches the NVSwitches of NVLink 5 by it",
        )  # fmt: skip
    # `present` is only verified, and this daemon is a convenience that nobody has asked for there.
    if settings.driver.persistenced and settings.driver.source != "present" and driver.service("nvidia-persistenced"):
        yield _service(node, "nvidia-persistenced")


def _service(node: Node, name: str) -> Finding:
    service = node.driver.service(name)
    found = "not installed"
    if service is not None:
        boot = "starts at boot" if service.enabled else "does not start at boot"
        found = f"{'running' if service.active else 'stopped'}, {boot}"
    wanted = "running, starts at boot"
    # It needs the module that is on disk: what it lacks comes with the boot.
    waits = node.driver.reboot_pending and service is not None and service.enabled
    return compared("driver", Subject.SERVICE.of(name), found, wanted, found == wanted or waits)
