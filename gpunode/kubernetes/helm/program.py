"""The program helm: its version, and what its errors mean."""

from __future__ import annotations

import re
from dataclasses import dataclass

from gpunode.base.explanations import rules
from gpunode.base.reading import ParseError
from gpunode.base.versions import parsed
from gpunode.settings.cluster.features import of_helm

_LONGEST, _FEW = 300, 4


# Of helm 3 by --debug, of helm 4 below its error.
_NOT_READY = (
    re.compile(r"\[debug\] (?P<what>\w+) is not ready: (?P<name>\S+)\. (?P<why>.+)"),
    re.compile(r"resource (?P<what>\w+)/(?P<name>\S+) not ready\. status: (?P<why>.+)"),
)
_DEBUG = re.compile(r"\S+\.go:\d+: .*\[debug\]")
_LAST = re.compile(r"helm\.go:\d+: .*\[debug\]")


def not_ready(words: str) -> tuple[str, ...]:
    """Return what was not ready when helm gave up: `Deployment ns/name: 0 out of 1 expected pods are ready`."""
    by_debug, by_error = ([*pattern.finditer(words)] for pattern in _NOT_READY)
    # helm 3 looks again and again, each time up to the first that is not ready.
    found = by_error or by_debug[-1:]
    return tuple(dict.fromkeys(f"{each['what']} {each['name'].lstrip('/')}: {each['why'].strip()}" for each in found))


def _undebugged(words: str) -> str:
    """Return helm's words without what --debug adds: its steps, and the stack that comes behind the error."""
    lines = words.splitlines()
    end = next((number for number, line in enumerate(lines) if _LAST.match(line)), len(lines))
    return "\n".join(line for line in lines[:end] if not _DEBUG.match(line))


def explained(what: str, words: str, settings: str = "device_plugin") -> str:
    """Return one message: what failed, helm's last words, cause and remedy, which names settings of a component."""
    late, words = not_ready(words), _undebugged(words)
    message = f"{what}: {_told(words)[:_LONGEST] or 'helm said nothing'}"
    # What the last `Error` says counts, else all.
    text = _told(words) if re.search(r"^\s*Error", words, re.MULTILINE) else words
    found = next((told for rule in rules("helm") if (told := rule.told(text, settings=settings))), None)
    late = tuple(each for each in late if each.partition(": ")[2] not in message)
    if late:
        more = f"; and {len(late) - _FEW} more" if len(late) > _FEW else ""
        message += f"\nnot ready when helm gave up: {'; '.join(each[:_LONGEST] for each in late[:_FEW])}{more}"
    return message if found is None else f"{message}\n{found.cause}; {found.remedy}"


def _told(words: str) -> str:
    """Return the last `Error` in one line, with the list that may stand below it; else the last line."""
    lines = [" ".join(line.split()) for line in words.splitlines() if line.strip()]
    last = max((number for number, line in enumerate(lines) if line.startswith("Error")), default=len(lines) - 1)
    return " ".join(lines[last:][:_FEW])


_PRINTED = re.compile(r"v(?P<version>(?P<major>\d{1,2})\.\d{1,3}\.\d{1,3})([-+][0-9A-Za-z.+-]*)?", re.ASCII)
# Of another major version nobody knows the options: helm 4 renamed and dropped some of helm 3.
MAJORS = (3, 4)


class HelmError(Exception):
    """Say why this helm is of no use, and what to do."""


@dataclass(frozen=True)
class Helm:
    """Hold a helm that gpunode can work with: how it is called, and its version."""

    program: str
    version: str

    @property
    def major(self) -> int:
        """Return its major version, one of MAJORS."""
        return int(self.version.partition(".")[0])


def version_command(program: str) -> tuple[str, ...]:
    """Return the command that prints a helm's version; it asks no cluster."""
    return (program, "version", "--template", "{{.Version}}")


def helm_of(program: str, printed: str) -> Helm:
    """Return the helm that printed its version so; raise ParseError, or HelmError where it is too old or too new."""
    match = _PRINTED.fullmatch(printed.strip())
    if match is None:
        raise ParseError(f"no version of helm: {printed[:80]!r}")
    version, needs = match["version"], of_helm()["program"]
    if int(match["major"]) not in MAJORS:
        known = " and ".join(map(str, MAJORS))
        raise HelmError(f"{program} is helm {version}; gpunode knows helm {known}: set kubernetes.helm to one of these")
    if parsed(version) < parsed(needs.minimum):
        raise HelmError(f"{program} is helm {version}, and {needs.minimum} or newer is needed ({needs.source})")
    return Helm(program, version)
