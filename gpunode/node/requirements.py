"""Judge every stated minimum on a node: met, not met, not applicable, or unknown, with found, desired and source."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from gpunode.base import tables, versions
from gpunode.base.reading import Reading, Unknown
from gpunode.base.tables.driver_versions import Minimum
from gpunode.node import Node

Answer = str | Unknown | None

_CUDA_GUIDE = "CUDA compatibility guide, minor-version compatibility"
_CUDA_NOTES = "CUDA release notes, table of toolkit and driver versions"
_MIG_GUIDE = "MIG user guide, deployment considerations"


class Status(StrEnum):
    """Name the outcome of one requirement."""

    MET = "met"
    NOT_MET = "not met"
    NOT_APPLICABLE = "not applicable"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Requirement(Reading):
    """Hold one judged requirement.

    `kind` is minimum (without it something does not work), security, or features (without it only some features
    work): the last two are warnings. `reason` says why the status is what it is, where the two values do not.
    """

    component: str
    status: Status
    actual: str | None
    desired: str
    needed_by: str | None
    kind: str
    source: str
    reason: str | None = None


@dataclass(frozen=True)
class Requirements(Reading):
    """Hold all judged requirements of a node."""

    requirements: tuple[Requirement, ...]


# Without these a node is merely not of that kind: no kubelet, no Kubernetes node.
_ABSENT = {
    "kubernetes": "no kubelet on this node",
    "docker": "no docker on this node",
    "device-plugin": "no device plugin on this node",
    "nvidia-docker2": "not installed; nvidia-container-toolkit is judged instead",
}


def _compared(found: str, row: Minimum) -> tuple[Status, str | None]:
    if row.equals is not None:
        return (Status.MET if found == row.equals else Status.NOT_MET), None
    try:
        return (Status.MET if versions.at_least(found, row.minimum or "") else Status.NOT_MET), None
    except versions.VersionError as error:
        return Status.UNKNOWN, str(error)


def _judged(row: Minimum, answers: Mapping[str, Answer], tegra: bool) -> tuple[Status, str | None]:
    found = answers.get(row.component)
    if row.when == "tegra" and not tegra:
        return Status.NOT_APPLICABLE, "no Tegra board"
    if isinstance(found, Unknown):
        return Status.UNKNOWN, found.reason
    alternative = answers.get(row.alternative_to or "")
    if row.component == "nvidia-docker2" and isinstance(alternative, str):
        return Status.NOT_APPLICABLE, f"{row.alternative_to} is installed instead"
    if row.component == "nvidia-container-toolkit" and found is None and isinstance(answers.get("nvidia-docker2"), str):
        return Status.NOT_APPLICABLE, "nvidia-docker2 is installed instead"
    if found is None and row.component in _ABSENT:
        return Status.NOT_APPLICABLE, _ABSENT[row.component]
    status, reason = (Status.NOT_MET, "there is none") if found is None else _compared(found, row)
    if row.component == "default-runtime" and status is Status.NOT_MET and alternative == row.equals:
        return Status.NOT_APPLICABLE, f"pods choose it by the runtime class {alternative}"
    return status, reason


def _stated(answers: Mapping[str, Answer], tegra: bool) -> Iterator[Requirement]:
    for row in tables.minimums():
        status, reason = _judged(row, answers, tegra)
        found = answers.get(row.component)
        yield Requirement(
            component=row.component,
            status=status,
            actual=found if isinstance(found, str) else None,
            desired=row.equals or f">= {row.minimum}",
            needed_by=row.needed_by,
            kind=row.kind,
            source=row.source,
            reason=reason,
        )


def _driver(driver: str | None, minimum: str | None, needed_by: str, kind: str, source: str) -> Requirement:
    """Judge the driver against one minimum; None says that no table states it."""
    status: Status = Status.UNKNOWN
    reason: str | None = "no table states the driver that it needs"
    if minimum is not None and driver is None:
        status, reason = Status.NOT_MET, "there is none"
    elif minimum is not None and driver is not None:
        status, reason = _compared(driver, Minimum("driver", source, minimum=minimum))
    desired = f">= {minimum}" if minimum else "unknown"
    return Requirement("driver", status, driver, desired, needed_by, kind, source, reason)


def _cuda(driver: str | None, installed: Iterable[str]) -> Iterator[Requirement]:
    table = tables.cuda()
    for version in installed:
        try:
            minor, full = table.minor_driver(version), table.full_driver(version)
        except versions.VersionError as error:
            yield Requirement(
                "driver", Status.UNKNOWN, None, "unknown", f"cuda {version}", "minimum", _CUDA_NOTES, str(error)
            )
            continue
        if minor is None:
            # Before CUDA 11 there is no minor-version compatibility: the toolkit's own driver is the minimum.
            yield _driver(driver, full, f"cuda {version}", "minimum", _CUDA_NOTES)
            continue
        yield _driver(driver, minor, f"cuda {version}", "minimum", _CUDA_GUIDE)
        yield _driver(driver, full, f"cuda {version}, all features", "features", _CUDA_NOTES)


def mig_product(name: str) -> str | None:
    """Return the MIG table's product that a GPU's name (`NVIDIA H100 80GB HBM3`) bears as a word; None if none."""
    return next((key for key in tables.mig_minimum_driver() if re.search(rf"\b{re.escape(key)}\b", name)), None)


def _mig(driver: str | None, gpu_names: Iterable[str]) -> Iterator[Requirement]:
    for product in dict.fromkeys(filter(None, map(mig_product, gpu_names))):
        yield _driver(driver, tables.mig_minimum_driver()[product], f"mig on {product}", "features", _MIG_GUIDE)


def judge(node: Node) -> Requirements:
    """Return every requirement of minimums.yaml and cuda.yaml, judged on one node's reading.

    The device plugin and RuntimeClass objects live in the cluster, where a node's own reading does not reach.
    """
    driver = node.driver
    default_runtime: Answer = node.containerd.default_runtime
    if default_runtime is None and node.containerd.version is not None:
        default_runtime = Unknown("containerd did not say its default runtime")
    elif default_runtime is None and node.crio.version is not None:
        default_runtime = node.crio.default_runtime or Unknown("CRI-O did not say its default runtime")
    answers: dict[str, Answer] = {
        "driver": driver.loaded_version or driver.module_version,
        "nvidia-container-toolkit": node.toolkit.version,
        "nvidia-docker2": node.toolkit.legacy.get("nvidia-docker2"),
        "kubernetes": node.kubelet.version,
        "docker": node.docker.version,
        "default-runtime": default_runtime,
    }
    products = tuple(gpu.name or "" for gpu in node.pci.gpus)
    return Requirements(judge_versions(answers, node.operating_system.tegra, node.cuda.versions, products))


def judge_versions(
    answers: Mapping[str, Answer],
    tegra: bool,
    cuda_versions: Iterable[str],
    gpu_products: Iterable[str] = (),
) -> tuple[Requirement, ...]:
    """Return every requirement of minimums.yaml and cuda.yaml, judged.

    answers: component, as minimums.yaml names it -> its version (a package's suffix does no harm), None (or left out)
    where the thing is absent. Of `default-runtime` it is the container runtime's effective default, Unknown where the
    runtime gave no answer; of `runtime-class` the RuntimeClass that pods may choose instead
    """
    driver = answers.get("driver")
    driver = None if isinstance(driver, Unknown) else driver
    return (*_stated(answers, tegra), *_cuda(driver, cuda_versions), *_mig(driver, gpu_products))
