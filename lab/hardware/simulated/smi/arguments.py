"""The command line of nvidia-smi and its errors."""

from __future__ import annotations

from .session import Failure

_FLAGS = {
    "-L": "list",
    "--list-gpus": "list",
    "-q": "log",
    "--query": "log",
    "-x": "xml-format",
    "--xml-format": "xml-format",
    "--version": "version",
    "-h": "help",
    "--help": "help",
    "--help-query-gpu": "help-query-gpu",
    "-r": "reset",
    "--gpu-reset": "reset",
    "-rac": "reset-applications-clocks",
    "--reset-applications-clocks": "reset-applications-clocks",
    "-rgc": "reset-gpu-clocks",
    "--reset-gpu-clocks": "reset-gpu-clocks",
    "-rmc": "reset-memory-clocks",
    "--reset-memory-clocks": "reset-memory-clocks",
}
_VALUES = {
    "-i": "id",
    "--id": "id",
    "--query-gpu": "query-gpu",
    "--query-compute-apps": "query-compute-apps",
    "--query-remapped-rows": "query-remapped-rows",
    "--format": "format",
    "-d": "display",
    "--display": "display",
    "-pm": "persistence-mode",
    "--persistence-mode": "persistence-mode",
    "-c": "compute-mode",
    "--compute-mode": "compute-mode",
    "-mig": "mig-mode",
    "--multi-instance-gpu": "mig-mode",
    "-pl": "power-limit",
    "--power-limit": "power-limit",
    "-ac": "applications-clocks",
    "--applications-clocks": "applications-clocks",
    "-lgc": "lock-gpu-clocks",
    "--lock-gpu-clocks": "lock-gpu-clocks",
    "-lmc": "lock-memory-clocks",
    "--lock-memory-clocks": "lock-memory-clocks",
    "-e": "ecc-config",
    "--ecc-config": "ecc-config",
}
_COMMANDS = (
    "list",
    "log",
    "version",
    "help",
    "help-query-gpu",
    "query-gpu",
    "query-compute-apps",
    "query-remapped-rows",
    "reset",
)
# What one GPU is set to, but for its modes (smi/power.py).
SETTINGS = (
    "power-limit",
    "applications-clocks",
    "reset-applications-clocks",
    "lock-gpu-clocks",
    "reset-gpu-clocks",
    "lock-memory-clocks",
    "reset-memory-clocks",
    "ecc-config",
)
_MODIFICATIONS = ("persistence-mode", "compute-mode", "mig-mode", "reset", *SETTINGS)
_ALLOWED_WITH = {
    "list": set(),
    "version": set(),
    "help": set(),
    "help-query-gpu": set(),
    "query-gpu": {"id", "format"},
    "query-compute-apps": {"id", "format"},
    "query-remapped-rows": {"id", "format"},
    "log": {"id", "display", "xml-format"},
    "reset": {"id"},
    "persistence-mode": {"id"},
    "compute-mode": {"id"},
    "mig-mode": {"id"},
    "table": {"id"},
    **{name: {"id"} for name in SETTINGS},
}
_HELP = "Please run 'nvidia-smi -h' for help.\n\n"


def parse(arguments: list[str]) -> tuple[str, dict[str, str]]:
    """Return the command (list, query-gpu, table ...) and its options by long name.

    Raises Failure with the real program's text for an unknown option, a missing value or a wrong combination.
    """
    given: dict[str, str] = {}
    spelled: dict[str, str] = {}
    rest = list(arguments)
    while rest:
        argument = rest.pop(0)
        name, equals, value = argument.partition("=")
        if argument in _FLAGS:
            key, value = _FLAGS[argument], ""
        elif name in _VALUES and (equals or name == argument):
            key = _VALUES[name]
            if not equals:
                if not rest or (rest[0].startswith("-") and len(rest[0]) > 1):
                    raise Failure(f"ERROR: Option {argument} is missing its value. {_HELP}", 255)
                value = rest.pop(0)
        else:
            raise Failure(f"ERROR: Option {argument} is not recognized. Please run 'nvidia-smi -h'.\n\n", 255)
        if key in given and key in _COMMANDS:
            raise Failure(f"ERROR: Only one command can be run at a time. {_HELP}", 2)
        given[key], spelled[key] = value, argument
    return _command(given, spelled), given


def _command(given: dict[str, str], spelled: dict[str, str]) -> str:
    changes = [key for key in given if key in _MODIFICATIONS]
    if len(changes) > 1:
        raise Failure(
            "Invalid combination of input arguments. Only one device modification may be done at a time.\n\n", 2
        )
    commands = [key for key in given if key in _COMMANDS and key not in changes]
    # `--query-gpu ... -L`: the real program takes the plain command and complains about the query.
    commands.sort(key=lambda key: _COMMANDS.index(key))
    command = (changes + commands or ["table"])[0]
    for key in given:
        if key != command and key not in _ALLOWED_WITH[command]:
            raise Failure(f"ERROR: Option {spelled[key]} is not valid for this command. {_HELP}", 2)
    return command
