"""modprobe, rmmod and modinfo of a lab node: nvidia* names are SIMULATED, all others go to the real kmod."""

from __future__ import annotations

import os
import sys

from . import module
from .machine import HardwareError, Machine

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_KMOD = "/usr/bin/kmod"
_WITH_VALUE = {"-F", "--field", "-k", "--set-version", "-S", "-d", "--dirname", "-C", "--config", "-b", "--basedir"}
_SHORT_FIELDS = {"-a": "author", "-d": "description", "-l": "license", "-p": "parm", "-n": "filename"}


def main(arguments: list[str], machine: Machine | None = None) -> int:
    """Act as the program that argument 0 names; return its exit status.

    What names no nvidia* at all the launcher has handed to the real kmod already (lab/hardware/image.py).
    """
    machine = machine or Machine()
    program = os.path.basename(arguments[0])
    names = _names(program, arguments[1:])
    if not names or not all(name.replace("-", "_").startswith("nvidia") for name in names):
        sys.stdout.flush()
        os.execv(_KMOD, [program, *arguments[1:]])
    machine.log(program, " ".join(arguments[1:]))
    try:
        return {"modprobe": _modprobe, "rmmod": _rmmod, "modinfo": _modinfo}[program](machine, arguments[1:], names)
    except (HardwareError, OSError) as error:
        # OSError: gpunode-lab-hardware.service has not run, so /sys/module is the kernel's own and not writable.
        print(f"{program}: ERROR: SIMULATED hardware: {error}", file=sys.stderr)
        return 1


def _names(program: str, arguments: list[str]) -> list[str]:
    with_value = _WITH_VALUE - ({"-b", "-d"} if program == "modprobe" else set())
    if program == "modinfo":
        with_value = with_value - {"-d"}
    names: list[str] = []
    skip = False
    for argument in arguments:
        if skip:
            skip = False
        elif argument in with_value:
            skip = True
        elif not argument.startswith("-") and "=" not in argument:
            names.append(argument)
    if program == "modprobe" and not {"-a", "--all", "-r", "--remove"} & set(arguments):
        return names[:1]
    return names


def _modprobe(machine: Machine, arguments: list[str], names: list[str]) -> int:
    options = {letter for argument in arguments if _is_short(argument) for letter in argument[1:]}
    options |= {argument for argument in arguments if argument.startswith("--")}
    quiet = bool({"q", "--quiet"} & options)
    for name in names:
        try:
            if {"n", "--dry-run", "--show"} & options:
                if module.module_file(machine, name.replace("-", "_")) is None:
                    raise LookupError(name)
            elif {"r", "--remove"} & options:
                _remove(machine, name)
            else:
                if {"b", "--use-blacklist"} & options and blacklisted(machine, name):
                    continue
                insert(machine, name)
        except LookupError as missing:
            if not quiet:
                folder = f"/lib/modules/{machine.kernel}"
                print(f"modprobe: FATAL: Module {missing.args[0]} not found in directory {folder}", file=sys.stderr)
            return 1
        except module.ModuleError as error:
            machine.log("modprobe", f"{name}: {error}")
            level = "FATAL" if str(error).startswith("Module") else "ERROR"
            print(f"modprobe: {level}: {error}", file=sys.stderr)
            return 1
    return 0


def _is_short(argument: str) -> bool:
    return argument.startswith("-") and not argument.startswith("--")


def _remove(machine: Machine, name: str) -> None:
    if name.replace("-", "_") not in module.loaded_modules(machine):
        if module.module_file(machine, name.replace("-", "_")) is None:
            raise LookupError(name)
        return
    module.unload(machine, name)


def insert(machine: Machine, name: str) -> None:
    """Load a module and then what /etc/modprobe.d says comes after it; raise as module.load does for the module itself.

    What comes after is not needed: as with the real modprobe, its absence is no error.
    """
    module.load(machine, name)
    for words in _configured(machine, "/etc/modprobe.d"):
        if words[:3] == ["softdep", name.replace("-", "_"), "post:"]:
            for later in words[3:]:
                try:
                    module.load(machine, later)
                except (LookupError, module.ModuleError):
                    continue
    _rules_of_udev(machine)


def _rules_of_udev(machine: Machine) -> None:
    """Do what udev, which a container has not, would do by a rule that links the devices: run nvidia-ctk."""
    program, folder = "/usr/bin/nvidia-ctk", "/etc/udev/rules.d"
    files = [name for name in machine.names_in(folder) if name.endswith(".rules")]
    rules = [machine.read(f"{folder}/{name}", errors="replace") for name in files]
    if machine.exists(program) and any("create-dev-char-symlinks" in text for text in rules):
        machine.log("udev", "a rule runs nvidia-ctk system create-dev-char-symlinks")
        os.spawnv(os.P_WAIT, machine.at(program), ["nvidia-ctk", "system", "create-dev-char-symlinks", "--create-all"])


def blacklisted(machine: Machine, name: str) -> bool:
    """Say whether a file in /etc/modprobe.d or /usr/lib/modprobe.d blacklists the module."""
    wanted = ["blacklist", name.replace("-", "_")]
    folders = ("/etc/modprobe.d", "/usr/lib/modprobe.d")
    return any(words == wanted for folder in folders for words in _configured(machine, folder))


def _configured(machine: Machine, folder: str) -> Iterator[list[str]]:
    """Go through the words of each line in a folder of modprobe's configuration, `-` written as `_`."""
    for file in machine.names_in(folder):
        if file.endswith(".conf"):
            for line in machine.read(f"{folder}/{file}", errors="replace").replace("-", "_").splitlines():
                yield line.split("#")[0].split()


def _rmmod(machine: Machine, arguments: list[str], names: list[str]) -> int:
    status = 0
    for name in names:
        try:
            module.unload(machine, name)
        except module.ModuleError as error:
            print(f"rmmod: ERROR: {error}", file=sys.stderr)
            status = 1
    return status


def _modinfo(machine: Machine, arguments: list[str], names: list[str]) -> int:
    field: str | None = None
    kernel: str | None = None
    for position, argument in enumerate(arguments):
        if argument in ("-F", "--field") and position + 1 < len(arguments):
            field = arguments[position + 1]
        elif argument.startswith("--field="):
            field = argument.partition("=")[2]
        elif argument in ("-k", "--set-version") and position + 1 < len(arguments):
            kernel = arguments[position + 1]
        else:
            field = _SHORT_FIELDS.get(argument, field)
    status = 0
    for name in names:
        found = module.module_file(machine, name.replace("-", "_"), kernel)
        if found is None and module.is_real(machine, name, kernel):
            sys.stdout.flush()
            os.execv(_KMOD, ["modinfo", *arguments])
        if found is None:
            print(f"modinfo: ERROR: Module {name} not found.", file=sys.stderr)
            status = 1
            continue
        kernel_name = kernel or machine.kernel
        fields = {
            "filename": found.path,
            "version": found.version,
            "license": found.license,
            "description": "SIMULATED NVIDIA kernel module of gpunode's lab",
            "name": name.replace("-", "_"),
            "vermagic": f"{kernel_name} SMP preempt mod_unload modversions ",
        }
        if field is None:
            for key, value in fields.items():
                print(f"{key + ':':<16}{value}")
        elif field in fields:
            print(fields[field])
    return status
