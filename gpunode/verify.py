"""Judge a node: is what was asked what is there? Pure: settings and a reading in, findings out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gpunode import versions
from gpunode.findings import Finding, FindingClass
from gpunode.health import health
from gpunode.keyring import PERMISSIONS
from gpunode.node import Node
from gpunode.preflight import chosen_flavour
from gpunode.settings import Settings

_RUN = "run deploys/gpu_node.py again"


def judge(settings: Settings, node: Node) -> tuple[Finding, ...]:
    """Return one finding per thing that the settings ask of a node, good ones included."""
    findings: list[Finding] = []
    if settings.driver.enabled:
        findings += _driver(settings, node)
        findings += health(node)
    if settings.cuda.enabled:
        findings += _cuda(settings, node)
    if settings.toolkit.enabled:
        findings += _toolkit(settings, node)
    if settings.containerd.enabled:
        findings += _containerd(settings, node)
    findings += _keys(settings, node)
    return tuple(findings)


def _compared(
    component: str, what: str, found: object, wanted: object, good: bool, remedy: str = _RUN, cause: str | None = None
) -> Finding:
    return Finding(
        component=component,
        finding_class=FindingClass.OK if good else FindingClass.DRIFT,
        what=what,
        found="none" if found is None else str(found),
        wanted=str(wanted),
        cause=None if good else cause,
        remedy=None if good else remedy,
    )


def _keys(settings: Settings, node: Node) -> Iterator[Finding]:
    """Judge the keys that package repositories are trusted by: each its pinned one and no other, for root to change."""
    used = {
        "cuda": settings.cuda.enabled or (settings.driver.enabled and settings.driver.source == "cuda-repository"),
        "toolkit": settings.toolkit.enabled,
        "docker": settings.containerd.enabled and settings.containerd.source == "docker-repository",
    }
    for name in (name for name, is_used in used.items() if is_used):
        wanted: str = getattr(settings.repositories, name).key_fingerprint
        found = node.keyrings.of(name)
        yield _compared(
            "repositories", f"key of {name}", ", ".join(found) or None, wanted, found == (wanted,),
            cause="the keyring was replaced or holds another key",
        )  # fmt: skip
        permissions = node.keyrings.permissions_of(name)
        if permissions is not None:
            yield _compared(
                "repositories", f"keyring of {name}", permissions, PERMISSIONS, permissions == PERMISSIONS,
                cause="others than root may change the keyring, or apt cannot read it",
            )  # fmt: skip


def _driver(settings: Settings, node: Node) -> Iterator[Finding]:
    asked, driver = settings.driver, node.driver
    rule = asked.version or asked.branch
    if rule is not None:
        on_disk = driver.module_version
        yield _compared(
            "driver", "module on disk", on_disk, rule, on_disk is not None and versions.in_branch(on_disk, rule)
        )
    if driver.reboot_pending:
        loaded = f"{driver.loaded_version} ({driver.loaded_flavour})" if driver.loaded_version else "nouveau"
        yield Finding(
            "driver", FindingClass.REBOOT_PENDING, "loaded module",
            loaded, f"{driver.module_version} ({driver.module_flavour})",
            cause="the driver was changed while the old module was loaded",
            remedy="drain and reboot the node",
        )  # fmt: skip
    else:
        yield _compared(
            "driver", "loaded module", driver.loaded_version, rule or driver.module_version,
            driver.loaded_version is not None and (rule is None or versions.in_branch(driver.loaded_version, rule)),
        )  # fmt: skip
    flavour = chosen_flavour(settings, node.pci.gpus)
    loaded_flavour = driver.loaded_flavour or driver.module_flavour
    # Where any flavour will do and gpunode did not install it, the one that is there is right.
    chosen = asked.flavour != "auto" or asked.source == "cuda-repository"
    if chosen and not driver.reboot_pending and loaded_flavour is not None:
        yield _compared("driver", "flavour", loaded_flavour, flavour, loaded_flavour == flavour)
    yield _compared(
        "driver", "library", driver.library_version, driver.module_version,
        driver.library_version is not None and driver.library_version == driver.module_version,
        cause="an upgrade moved one package and not the other",
    )  # fmt: skip
    if not driver.reboot_pending:
        if driver.loaded_version is not None:
            yield _compared(
                "driver", "nvidia_uvm", "loaded" if driver.uvm_loaded else None, "loaded", driver.uvm_loaded,
                cause="CUDA does not start without it",
            )  # fmt: skip
        yield from _gpus(node)
    if asked.source != "present":
        yield from _held(settings, node)
    yield from _services(settings, node)
    yield from next_boot(node)


def _held(settings: Settings, node: Node) -> Iterator[Finding]:
    """Judge whether apt keeps the driver's packages as they are, where the settings ask for it."""
    asked, driver = settings.driver, node.driver
    if not asked.hold:
        return
    wanted = [name for name, _ in driver.packages] + list(driver.kernels if asked.hold_kernel else ())
    loose = [name for name in wanted if name not in driver.held]
    yield _compared(
        "driver", "held", f"not {', '.join(loose)}" if loose else "all", "all", not loose,
        cause="the next upgrade of the system's packages would move the driver under the loaded module",
    )  # fmt: skip


def _services(settings: Settings, node: Node) -> Iterator[Finding]:
    """Judge fabric manager where there are NVSwitches, and the persistence daemon where its unit is."""
    driver = node.driver
    if node.pci.nvswitches and driver.module_version is not None:
        there = driver.fabric_managers
        yield _compared(
            "driver", "fabric manager", ", ".join(there) or None, driver.module_version,
            bool(there) and all(versions.same(version, driver.module_version) for version in there),
            cause="CUDA does not start (error 802) with a fabric manager of another version than the driver",
        )  # fmt: skip
        yield _service(node, "nvidia-fabricmanager")
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
    return _compared("driver", f"service {name}", found, wanted, found == wanted or waits)


def next_boot(node: Node) -> Iterator[Finding]:
    """Judge whether the kernel that boots next will load the driver that is on disk; nothing where none is known."""
    kernel, driver, boot = node.boot.next_kernel, node.driver, node.boot
    if kernel is None or driver.module_version is None:
        return
    release = kernel.release
    build = f"`dkms autoinstall -k {release}` on the node, before it boots"
    if not kernel.headers:
        build = f"install linux-headers-{release}, then {build}"
    cause = f"kernel {release} boots next and has " + (
        f"a module {kernel.module_version}" if kernel.module_version else "no nvidia module"
    )
    if kernel.module_version is None:
        state = boot.dkms_state("nvidia", release)
        cause += f"; DKMS: {state}" if state else "; DKMS knows of none"
        cause += "" if kernel.headers else "; its headers are not there"
    yield _compared(
        "driver", "next boot", kernel.module_version, driver.module_version,
        kernel.module_version == driver.module_version, remedy=build, cause=cause,
    )  # fmt: skip
    if boot.secure_boot and kernel.module_version is not None:
        yield _compared(
            "driver", "next boot's signature", kernel.module_signer, "signed by a key that the firmware knows",
            # What DKMS built, DKMS signed.
            kernel.module_signer is not None and (boot.key_enrolled or boot.dkms_state("nvidia", release) is None),
            remedy="enrol a key and sign the module (`mokutil --import`, `dkms autoinstall`), or use signed packages",
            cause="secure boot is on: the kernel will reject the module",
        )  # fmt: skip
    if kernel.initramfs_written is not None and boot.blacklist_written is not None:
        yield _compared(
            "driver", "next boot's initramfs", "holds nouveau" if kernel.initramfs_nouveau else "does not load nouveau",
            "does not load nouveau", not kernel.initramfs_nouveau,
            remedy=f"`update-initramfs -u -k {release}` on the node",
            cause="it is older than the blacklist of nouveau, which may be loaded before the blacklist is read",
        )  # fmt: skip


def _gpus(node: Node) -> Iterator[Finding]:
    """Judge nvidia-smi: an answer for each GPU on the bus. With a reboot pending it cannot answer, which is no news."""
    causes = {
        "hangs": "nvidia-smi gives no answer: a GPU is wedged",
        "lost": "a GPU fell off the bus",
        "mismatch": "the library is not of the loaded module's version",
        "no driver": "the module is not loaded or does not drive this GPU",
    }
    remedies = {"hangs": "drain and reboot the node; look for Xid in dmesg", "lost": "drain and reboot the node"}
    on_bus, answering = len(node.pci.gpus), len(node.gpus.gpus)
    if node.gpus.status in ("hangs", "lost", "error"):
        yield Finding(
            "driver", FindingClass.ERROR, "GPUs by nvidia-smi", node.gpus.message or node.gpus.status, f"{on_bus}",
            cause=causes.get(node.gpus.status, f"nvidia-smi exits {node.gpus.exit_code}"),
            remedy=remedies.get(node.gpus.status, "run nvidia-smi on the node"),
        )  # fmt: skip
        return
    yield _compared(
        "driver", "GPUs by nvidia-smi",
        answering if node.gpus.status == "ok" else f"{answering} ({node.gpus.message or node.gpus.status})", on_bus,
        node.gpus.status == "ok" and answering == on_bus,
        cause=causes.get(node.gpus.status, "a GPU on the bus is not driven"),
    )  # fmt: skip


def _cuda(settings: Settings, node: Node) -> Iterator[Finding]:
    wanted = settings.cuda.version
    yield _compared("cuda", "toolkit", ", ".join(node.cuda.versions) or None, wanted, wanted in node.cuda.versions)
    yield _compared(
        "cuda", "/usr/local/cuda", node.cuda.default_version, wanted, node.cuda.default_version == wanted,
        remedy="`update-alternatives --config cuda` on the node",
    )  # fmt: skip
    nvcc = node.cuda.nvcc_version
    yield _compared("cuda", "nvcc", nvcc, wanted, nvcc is not None and versions.in_branch(nvcc, wanted))
    if settings.cuda.profile:
        yield _compared("cuda", "profile script", "yes" if node.cuda.profile else None, "yes", node.cuda.profile)


def _toolkit(settings: Settings, node: Node) -> Iterator[Finding]:
    found, wanted = node.toolkit.version, settings.toolkit.version
    good = found is not None and (wanted is None or versions.in_branch(found, wanted))
    yield _compared("toolkit", "nvidia-container-toolkit", found, wanted or "any version", good)
    packages = (*node.toolkit.package_versions, *(f"no {name}" for name in node.toolkit.missing_packages))
    yield _compared(
        "toolkit", "packages", ", ".join(packages), "one version", len(packages) == 1,
        cause="a package was changed without the others",
    )  # fmt: skip
    yield _compared(
        "toolkit", "nvidia-container-runtime", node.toolkit.runtime_path, "on the PATH",
        node.toolkit.runtime_path is not None,
    )  # fmt: skip


def _containerd(settings: Settings, node: Node) -> Iterator[Finding]:
    asked, containerd = settings.containerd, node.containerd
    found = containerd.version
    good = found is not None and (asked.version is None or versions.in_branch(found, asked.version))
    yield _compared("containerd", "version", found, asked.version or "any version", good)
    yield _compared(
        "containerd", "service", "running" if containerd.active else "stopped", "running", containerd.active
    )
    yield _compared("containerd", "starts at boot", "yes" if containerd.enabled else "no", "yes", containerd.enabled)
    # Where the settings forbid a restart that containers would feel, the change is to come: it was not forgotten.
    waits = settings.disruption.allow == "nothing" and containerd.shims > 0
    for item in _runtimes(settings, node):
        if waits and item.finding_class is FindingClass.DRIFT:
            yield replace(
                item,
                finding_class=FindingClass.RESTART_PENDING,
                cause=f"{containerd.shims} containers run and disruption.allow is nothing",
                remedy="drain the node, or set disruption.allow = 'restart', and " + _RUN,
            )
        else:
            yield item
    if containerd.active:
        yield _compared("containerd", "CRI plugin", containerd.cri_plugin, "ok", containerd.cri_plugin == "ok")


def _runtimes(settings: Settings, node: Node) -> Iterator[Finding]:
    """Judge the merged configuration, and whether the daemon runs by it."""
    asked, containerd = settings.containerd, node.containerd
    if containerd.stale:
        yield Finding(
            "containerd", FindingClass.RESTART_PENDING, "running configuration", "older than its files", "the files'",
            cause="a configuration file was written after containerd started", remedy=_RUN,
        )  # fmt: skip
    yield _compared(
        "containerd", "default runtime", containerd.default_runtime, asked.default_runtime,
        containerd.default_runtime == asked.default_runtime,
        cause="the merged configuration (`containerd config dump`) says otherwise",
    )  # fmt: skip
    for name in ("runc", "nvidia") if settings.toolkit.enabled else ("runc",):
        runtime = containerd.runtime(name)
        value = None if runtime is None else str(runtime.systemd_cgroup).lower()
        wanted = str(asked.systemd_cgroup).lower()
        yield _compared("containerd", f"SystemdCgroup of {name}", value, wanted, value == wanted)
