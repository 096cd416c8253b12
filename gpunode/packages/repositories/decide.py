"""What is to be done about the keys by which package repositories are trusted: each its pinned one and no other."""

from __future__ import annotations

from collections.abc import Mapping

from gpunode.base import tables
from gpunode.base.comparison import finding_message
from gpunode.base.decision import Decision, Step, bad
from gpunode.base.disruption import Disruption
from gpunode.base.findings import Finding
from gpunode.packages.keyring import PERMISSIONS, Keyrings
from gpunode.packages.repositories.source import NAMES
from gpunode.packages.trust import uses_repository
from gpunode.settings import Settings
from gpunode.system.operating_system import OperatingSystem

_REPLACED, _MISSING = "the keyring was replaced or holds another key", "its key is not on the node"
KEY = finding_message(
    "repositories",
    "key of",
    "The key by which packages of a repository are trusted is not the one that is pinned.",
    "The keyring holds another key, or none. Packages are refused, or another key is trusted.",
    name="key",
    causes=(_REPLACED, _MISSING),
)
KEYRING = finding_message(
    "repositories",
    "keyring of",
    "Users other than root may change a keyring, or it cannot be read.",
    "Who changes it decides whose packages root installs.",
    name="keyring",
    cause="others than root may change the keyring, or it cannot be read",
)


def desired_of(settings: Settings, system: OperatingSystem) -> dict[str, str]:
    """Return name -> fingerprint of the key of each repository that anything is taken from.

    There is none of ours where all comes from the distribution's own, whose keys are the package manager's.
    """
    of = tables.distribution(system.id, system.version_id)
    if of is not None and of.repository is None:
        return {}
    family, key, folder = (of.family, of.unverified_key, of.repository) if of else ("apt", None, None)
    return {
        name: settings.repositories.on(name, family, key, folder).key_fingerprint
        for name in NAMES
        if uses_repository(settings, name)
    }


def decide(desired: Mapping[str, str], actual: Keyrings) -> Decision[None]:
    """Return what is to be done about the keyrings: for root alone to change.

    desired: repository -> fingerprint of its key
    """
    findings: list[Finding] = []
    steps: list[Step[None]] = []
    for name, to_be in desired.items():
        found = actual.of(name)
        both = [
            KEY.compared(
                ", ".join(found) or None,
                to_be,
                found == (to_be,),
                of=name,
                cause=_REPLACED if found else _MISSING,
            )
        ]
        permissions = actual.permissions_of(name)
        if permissions is not None:
            both.append(KEYRING.compared(permissions, PERMISSIONS, permissions == PERMISSIONS, of=name))
        findings += both
        if differences := bad(*both):
            steps.append(Step(f"trust the {name} repository by its pinned key", differences, Disruption.nothing))
    return Decision(tuple(findings), tuple(steps))
