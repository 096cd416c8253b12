"""What keeps the toolkit's packages still, as a file's text: apt's preferences of gpunode's own, dnf's versionlock."""

from __future__ import annotations

from types import MappingProxyType

from gpunode.base.template import rendered
from gpunode.components.toolkit.state import ContainerToolkit
from gpunode.packages.families import dnf, dnf5

# Family -> what its versionlock's list is to say.
_LOCKED = MappingProxyType({"dnf": dnf.locked, "dnf5": dnf5.locked})


def hold_text(family: str, actual: ContainerToolkit, hold: bool) -> str | None:
    """Return the text of the file that holds what is installed, or nothing of gpunode's; None: there is no such file.

    dnf's list is everybody's: what others have in it stays. Raises ValueError for a list of dnf 5 that cannot be read.
    """
    keep = actual.to_hold if hold else {}
    if family in _LOCKED:
        return _LOCKED[family](actual.hold_text or "", keep, group="toolkit")
    return rendered("toolkit-preferences", packages=keep) if keep else None


def is_held(family: str, actual: ContainerToolkit, hold: bool) -> bool:
    """Say whether that file is as it should be.

    apt's that is to go is an own file like others; of dnf's, without its plugin, nothing is known.
    """
    if family not in ("apt", *_LOCKED) or (family == "apt" and not hold):
        return True
    if family in _LOCKED and actual.hold_text is None:
        return True
    try:
        return hold_text(family, actual, hold) == actual.hold_text
    except ValueError:
        # Its operation says what is wrong with the list.
        return False
