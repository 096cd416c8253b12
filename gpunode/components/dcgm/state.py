"""DCGM on a node: its packages, its two services, and what `dcgmi health -c -j` reports of the GPUs' health.

That JSON: `body` has `Overall Health` and a group of entities by their kind (GPU, Switch, …), each entity the `Errors`
of its systems, with `value` (Healthy, Warning, Failure) and the words in `overflow`, cut into lines. Where it has no
answer it prints `Error: …` and ends with another exit code than 0.
source: NVIDIA/DCGM at v4.6.0, dcgmi/Health.cpp and dcgmi/DcgmiOutput.h
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gpunode.base.probe_output import decoded, repeated, values
from gpunode.base.reading import Reading
from gpunode.base.structured_text import TextError, load_json
from gpunode.base.template import rendered
from gpunode.settings.dcgm import known
from gpunode.system.service import Daemon, daemon

if TYPE_CHECKING:
    from gpunode.settings import Settings
    from gpunode.settings.dcgm import ExporterSettings

HEALTHY, WARNING = "Healthy", "Warning"
_OVERALL, _UNWATCHED = "Overall Health", "Health watches not enabled"
_LONGEST = 400


@dataclass(frozen=True)
class Incident:
    """Hold what is wrong with one system (`PCIe system`) of one entity (`GPU 0`): Warning or worse, in DCGM's words."""

    entity: str
    system: str
    value: str
    message: str = ""


@dataclass(frozen=True)
class DcgmHealth(Reading):
    """Hold the answer: `overall` is None where there is none, and `error` says why then.

    `watched`: whether the host engine watches anything; without that it has nothing to say.
    """

    overall: str | None = None
    incidents: tuple[Incident, ...] = ()
    watched: bool = True
    error: str | None = None


def parse_health(printed: str, exit_code: str) -> DcgmHealth:
    """Parse what dcgmi printed; whatever that is, it comes to an answer or to an error in its words."""
    if _UNWATCHED in printed:
        return DcgmHealth(watched=False)
    found = _object(printed)
    overall = _text(_member(_member(found.get("body"), _OVERALL), "value"))
    if exit_code != "0" or overall is None:
        words = " ".join(printed.split())[:_LONGEST]
        return DcgmHealth(error=words or f"exit code {exit_code}, and no answer")
    return DcgmHealth(overall, tuple(_incidents(found["body"])))


def _incidents(body: dict[str, Any]) -> Iterator[Incident]:
    for kind, group in body.items():
        for number, entity in _children(group):
            for _, errors in _children(entity):
                for system, said in _children(errors):
                    value, lines = _text(_member(said, "value")), _member(said, "overflow")
                    message = " ".join(map(str, lines)) if isinstance(lines, list) else ""
                    words = " ".join(message.split())[:_LONGEST]
                    yield Incident(f"{kind} {number}", system, value or "no value", words)


def _object(text: str) -> dict[str, Any]:
    try:
        found = load_json(text)
    except TextError:
        return {}
    return found if isinstance(found, dict) else {}


def _member(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, dict) else None


def _children(value: Any) -> Iterator[tuple[str, Any]]:
    children = _member(value, "children")
    yield from children.items() if isinstance(children, dict) else ()


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


# The names of DCGM's packages, of each major version: for dpkg, and for grep -E.
GLOB, NAMES = "datacenter-gpu-manager*", "^datacenter-gpu-manager"
# Where the kubelet has a folder of each pod that is on the node.
PODS = "/var/log/pods"


@dataclass(frozen=True)
class DcgmUnit(Daemon):
    """A unit of DCGM's; outdated: its files changed, and systemd has not read them since."""

    outdated: bool = False


@dataclass(frozen=True)
class Dcgm(Reading):
    """Hold DCGM as it is on the host.

    `packages` are (name, version) of DCGM 3 and 4 and of the exporter, `engine` and `exporter` their units, None where
    there is none. `variables` are those by which the exporter that runs was started, `told` those of gpunode's
    drop-in, `configured` those that systemd has read for its next start; `flags` of its command line count more.
    `files` are gpunode's drop-ins that are there. `pods` are NAMESPACE/POD of an exporter or a host engine that a
    cluster has on this node. `health` is None where dcgmi was not asked. `lost` are programs of installed packages.
    """

    packages: tuple[tuple[str, str], ...] = ()
    engine: DcgmUnit | None = None
    exporter: DcgmUnit | None = None
    variables: tuple[tuple[str, str], ...] = ()
    told: tuple[tuple[str, str], ...] = ()
    configured: tuple[tuple[str, str], ...] = ()
    flags: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    pods: tuple[str, ...] = ()
    health: DcgmHealth | None = None
    lost: tuple[str, ...] = ()

    @property
    def version(self) -> str | None:
        """Return the version of DCGM 4, None where it is not there."""
        return dict(self.packages).get(known().core)

    @property
    def former(self) -> tuple[str, ...]:
        """Return the packages of DCGM 3 that are there, each with its version."""
        return tuple(f"{name} {version}" for name, version in self.packages if name in known().former)

    @property
    def units(self) -> Mapping[str, DcgmUnit | None]:
        """Return the unit's name -> the unit; the exporter first, which asks the other."""
        return {EXPORTER: self.exporter, ENGINE: self.engine}

    def is_gpunode_s(self, unit: str) -> bool:
        """Say whether gpunode was asked to run a unit: its drop-in is there."""
        return FILES[unit] in self.files


def parse_dcgm(lines: list[str]) -> Dcgm:
    """Parse the DCGM probe's lines (gpunode/components/dcgm/state.sh); raise ParseError."""
    units: dict[str, list[str]] = {}
    current: list[str] = []
    for line in lines:
        if line.startswith("unit="):
            current = units.setdefault(line.removeprefix("unit="), [])
        current.append(line)
    found = values(lines)
    printed = decoded(found, "health")
    asked = "health.rc" in found
    return Dcgm(
        packages=_pairs(lines, "package", " "),
        engine=_unit(units.get(ENGINE)),
        exporter=_unit(units.get(EXPORTER)),
        variables=_pairs(lines, "variable"),
        told=_pairs(lines, "told"),
        configured=_pairs(lines, "configured"),
        flags=tuple(sorted(set(repeated(lines, "flag")))),
        files=tuple(sorted(repeated(lines, "file"))),
        pods=tuple(sorted(set(repeated(lines, "pod")))),
        health=parse_health(printed or "", found["health.rc"]) if asked else None,
        lost=tuple(repeated(lines, "lost")),
    )


def _pairs(lines: list[str], key: str, by: str = "=") -> tuple[tuple[str, str], ...]:
    cut = (line.partition(by) for line in repeated(lines, key))
    return tuple(sorted((name, value) for name, _, value in cut))


def _unit(lines: list[str] | None) -> DcgmUnit | None:
    if lines is None:
        return None
    outdated = values(lines).get("NeedDaemonReload") == "yes"
    return DcgmUnit(outdated=outdated, **daemon(lines, ("active", "activating", "reloading")))


# The files by which DCGM's units do what the settings ask; the packages' own units stay as they are.
ENGINE, EXPORTER = "nvidia-dcgm.service", "nvidia-dcgm-exporter.service"
ENGINE_FILE = f"/etc/systemd/system/{ENGINE}.d/50-gpunode.conf"
EXPORTER_FILE = f"/etc/systemd/system/{EXPORTER}.d/50-gpunode.conf"
FILES = {ENGINE: ENGINE_FILE, EXPORTER: EXPORTER_FILE}
PATHS = (ENGINE_FILE, EXPORTER_FILE)
# Where nv-hostengine listens by itself.
HOST_ENGINE = "127.0.0.1:5555"


def variables(desired: ExporterSettings) -> dict[str, str]:
    """Return the variables by which the exporter is told what is desired; it counts in milliseconds."""
    found = {"DCGM_EXPORTER_LISTEN": desired.listens, "DCGM_EXPORTER_INTERVAL": str(desired.interval * 1000)}
    if desired.engine == "host":
        found |= {"DCGM_REMOTE_HOSTENGINE_INFO": HOST_ENGINE, "DCGM_EXPORTER_NO_HOSTNAME": "true"}
    return found


def exporter_text(desired: ExporterSettings) -> str:
    """Return the exporter's drop-in; one that asks the host engine goes and comes with it."""
    engine = ENGINE if desired.engine == "host" else ""
    return rendered("dcgm-exporter.conf", variables=variables(desired), engine=engine)


def files(settings: Settings, machine: object) -> dict[str, str | None]:
    """Return both drop-ins, which are the same on every machine; None: gpunode runs nothing of it."""
    desired = settings.dcgm
    exporter = desired.enabled and desired.exporter.enabled
    return {
        ENGINE_FILE: rendered("dcgm.conf", health=desired.health) if desired.enabled else None,
        EXPORTER_FILE: exporter_text(desired.exporter) if exporter else None,
    }
