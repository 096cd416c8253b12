"""The command line of `nvidia-smi mig`."""

from __future__ import annotations

from ..session import Failure

_ACTIONS = {
    "-h": "help",
    "--help": "help",
    "-lgip": "lgip",
    "--list-gpu-instance-profiles": "lgip",
    "-lgipp": "lgipp",
    "--list-gpu-instance-possible-placements": "lgipp",
    "-lgi": "lgi",
    "--list-gpu-instances": "lgi",
    "-lcip": "lcip",
    "--list-compute-instance-profiles": "lcip",
    "-lci": "lci",
    "--list-compute-instances": "lci",
    "-cgi": "cgi",
    "--create-gpu-instance": "cgi",
    "-cci": "cci",
    "--create-compute-instance": "cci",
    "-dgi": "dgi",
    "--destroy-gpu-instance": "dgi",
    "-dci": "dci",
    "--destroy-compute-instance": "dci",
}
_OPTIONS = {
    "-i": "id",
    "--id": "id",
    "-gi": "gpu-instance",
    "--gpu-instance-id": "gpu-instance",
    "-ci": "compute-instance",
    "--compute-instance-id": "compute-instance",
    "-C": "default-compute-instance",
    "--default-compute-instance": "default-compute-instance",
}
_ALLOWED_WITH = {
    "help": (),
    "lgip": ("id",),
    "lgipp": ("id",),
    "lgi": ("id",),
    "lcip": ("id", "gpu-instance"),
    "lci": ("id", "gpu-instance"),
    "cgi": ("id", "default-compute-instance"),
    "cci": ("id", "gpu-instance"),
    "dgi": ("id", "gpu-instance"),
    "dci": ("id", "gpu-instance", "compute-instance"),
}
_HELP = "Please run 'nvidia-smi mig -h' for help.\n\n"


def parse(arguments: list[str]) -> tuple[str, dict[str, str]]:
    """Return the action (lgi, cgi ...) and its options; the action's own value stands under its name.

    Raises Failure for an option that is unknown, lacks its value or does not belong to the action.
    """
    given: dict[str, str] = {}
    action = ""
    rest = list(arguments)
    while rest:
        argument = rest.pop(0)
        key = _ACTIONS.get(argument) or _OPTIONS.get(argument)
        if key is None:
            raise Failure(f"ERROR: Option {argument} is not recognized. {_HELP}", 255)
        if argument in _ACTIONS:
            if action:
                raise Failure(f"ERROR: Only one command can be run at a time. {_HELP}", 2)
            action = key
        value = ""
        if key in ("id", "gpu-instance", "compute-instance", "cgi") or (key == "cci" and _has_value(rest)):
            if not _has_value(rest):
                raise Failure(f"ERROR: Option {argument} is missing its value. {_HELP}", 255)
            value = rest.pop(0)
        given[key] = value
    if not action:
        raise Failure(f"ERROR: No command was given. {_HELP}", 2)
    for key in given:
        if key != action and key not in _ALLOWED_WITH[action]:
            spelled = next(argument for argument in arguments if _OPTIONS.get(argument) == key)
            raise Failure(f"ERROR: Option {spelled} is not valid for this command. {_HELP}", 2)
    return action, given


def _has_value(rest: list[str]) -> bool:
    return bool(rest) and not rest[0].startswith("-")
