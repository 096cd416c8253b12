"""The command line of `nvidia-smi mig`, as forgiving as the real one."""

from __future__ import annotations

from ..session import Failure

# Of several actions in one call only the first in this order is done; all others are silently left out.
_ACTIONS = {
    "lgip": "--list-gpu-instance-profiles",
    "lgipp": "--list-gpu-instance-possible-placements",
    "cgi": "--create-gpu-instance",
    "lgi": "--list-gpu-instances",
    "dgi": "--destroy-gpu-instance",
    "lcip": "--list-compute-instance-profiles",
    "lcipp": "--list-compute-instance-possible-placements",
    "cci": "--create-compute-instance",
    "lci": "--list-compute-instances",
    "dci": "--destroy-compute-instance",
}
_OPTIONS = {
    "h": "--help",
    "i": "--id",
    "gi": "--gpu-instance-id",
    "ci": "--compute-instance-id",
    "C": "--default-compute-instance",
}
_NAMES = {name: key for key, long in {**_ACTIONS, **_OPTIONS}.items() for name in (f"-{key}", long)}
_WITH_VALUE = ("i", "gi", "ci", "cgi")
_PERHAPS_WITH_VALUE = ("cci",)


def parse(arguments: list[str]) -> tuple[str, dict[str, str]]:
    """Return the action (`cgi`; `help`; empty where there is none) and everything given, by its short name.

    Options that do not belong to the action are taken and ignored. Raises Failure 2 for a word that is unknown and for
    a value that is missing.
    """
    given: dict[str, str] = {}
    rest = [part for argument in arguments for part in _divided(argument)]
    while rest:
        argument = rest.pop(0)
        key = _NAMES.get(argument)
        if key is None:
            raise Failure(f'Option "{argument}" is not recognized.\n', 2)
        value = ""
        if key in _WITH_VALUE or key in _PERHAPS_WITH_VALUE:
            if rest and not rest[0].startswith("-"):
                value = rest.pop(0)
            elif key in _WITH_VALUE:
                raise Failure(f'Option "{argument}" is missing its value.\n', 2)
        given[key] = value
    action = next((action for action in _ACTIONS if action in given), "")
    if "h" in given or (not action and not {"C", "ci", "gi"} & given.keys()):
        action = "help"
    return action, given


def _divided(argument: str) -> list[str]:
    name, equals, value = argument.partition("=")
    return [name, value] if equals and name.startswith("-") else [argument]
