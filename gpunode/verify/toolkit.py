"""Is the NVIDIA container toolkit there, whole and at one version, and configured as asked?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gpunode import versions
from gpunode.base.comparison import RUN, compared
from gpunode.base.subject import Subject
from gpunode.findings import Finding, FindingClass
from gpunode.node import Node
from gpunode.settings import Settings
from gpunode.toml_edit import ConfigurationRefused
from gpunode.toolkit.configuration import PATH, asked_of, differences


def toolkit(settings: Settings, node: Node) -> Iterator[Finding]:
    """Judge the toolkit's packages, and the runtime that container daemons are told of."""
    found, wanted = node.toolkit.version, settings.toolkit.version
    good = found is not None and (wanted is None or versions.in_branch(found, wanted))
    yield compared("toolkit", Subject.TOOLKIT, found, wanted or "any version", good)
    packages = (*node.toolkit.package_versions, *(f"no {name}" for name in node.toolkit.missing_packages))
    yield compared(
        "toolkit", Subject.TOOLKIT_PACKAGES, ", ".join(packages), "one version", len(packages) == 1,
        cause="a package was changed without the others",
    )  # fmt: skip
    yield compared(
        "toolkit", Subject.TOOLKIT_RUNTIME, node.toolkit.runtime_path, "on the PATH",
        node.toolkit.runtime_path is not None,
    )  # fmt: skip
    yield from _legacy(settings, node)
    if settings.toolkit.hold:
        loose = sorted(set(node.toolkit.to_hold) - set(node.toolkit.held))
        yield compared("toolkit", Subject.TOOLKIT_HELD, f"not {', '.join(loose)}" if loose else "all", "all", not loose)
    yield from _configuration(settings, node)
    if node.toolkit.cdi_drafts:
        yield compared(
            "toolkit", Subject.CDI_SPECIFICATION, f"{', '.join(node.toolkit.cdi_drafts)} beside it", "no draft", False,
            cause="a run was cut off; runtimes that read a draft find each device twice, and hand in none",
        )  # fmt: skip
    elif settings.toolkit.cdi == "generate":
        yield from _specification(node)
    if settings.toolkit.device_links:
        yield _device_links(node)


def _legacy(settings: Settings, node: Node) -> Iterator[Finding]:
    legacy = node.toolkit.legacy
    if legacy:
        found = ", ".join(f"{name} {version}" for name, version in legacy.items())
        remedy = RUN if settings.toolkit.migrate else f"set toolkit.migrate = True and {RUN}"
        yield compared(
            "toolkit", Subject.TOOLKIT_LEGACY, found, "none", False, remedy,
            cause="the container toolkit takes its place",
        )  # fmt: skip


def _configuration(settings: Settings, node: Node) -> Iterator[Finding]:
    asked = asked_of(settings.toolkit)
    if not asked:
        return
    try:
        bad = differences(node.toolkit.config_text, asked)
    except ConfigurationRefused as refusal:
        remedy = f"mend {PATH} by hand, or move it away and {RUN}"
        yield compared(
            "toolkit", Subject.TOOLKIT_CONFIGURATION, "unreadable", "as asked", False, remedy, cause=str(refusal)
        )
        return
    found = "; ".join(f"{item.key} {item.found}" for item in bad) or "as asked"
    wanted = "; ".join(f"{item.key} {item.wanted}" for item in bad) or "as asked"
    yield compared("toolkit", Subject.TOOLKIT_CONFIGURATION, found, wanted, not bad)


def _specification(node: Node) -> Iterator[Finding]:
    """Judge the CDI specification; one that no runtime would err by is good, whoever made it."""
    loaded = node.driver.loaded_version
    if loaded is None:
        return
    stale = node.toolkit.stale_cdi(loaded)
    lacking = {item.path: node.toolkit.hooks_lacking(item) for item in stale}
    shown = [
        f"{item.path} with {', '.join(lacking[item.path])}" if item.driver_version == loaded
        else f"{item.path} of driver {item.driver_version or 'unknown'}"
        for item in stale
    ]  # fmt: skip
    good = bool(node.toolkit.cdi) and not stale
    found = "; ".join(shown) or (f"of driver {loaded}" if good else None)
    cause = "the driver was changed after it was made" if stale else None
    if stale and all(item.driver_version == loaded for item in stale):
        cause = f"a newer toolkit made it: {node.toolkit.version} lacks these hooks, and containers may not start"
    item = compared("toolkit", Subject.CDI_SPECIFICATION, found, f"of driver {loaded}", good, cause=cause)
    if not good and node.driver.reboot_pending:
        item = replace(item, finding_class=FindingClass.REBOOT_PENDING, cause="another driver is on disk than loaded")
    yield item


def _device_links(node: Node) -> Finding:
    lacking = [f"none for {', '.join(node.toolkit.unlinked)}"] if node.toolkit.unlinked else []
    if not node.toolkit.link_rule:
        lacking.append("no udev rule")
    wanted = "one in /dev/char for each device, and a udev rule"
    return compared(
        "toolkit", Subject.DEVICE_LINKS, "; ".join(lacking) or "all", wanted, not lacking,
        cause="a container loses its GPUs at the next `systemctl daemon-reload`",
    )  # fmt: skip
