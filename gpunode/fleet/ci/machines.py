"""The machines of a CI job, as pyinfra's host data: from the environment, from terraform's output, or from vagrant's.

Every machine is (name, data) with ssh_hostname, ssh_port, ssh_user, ssh_key, ssh_known_hosts_file, host key checking
and _sudo. MachinesError says which source cannot be used: what, where, what is allowed, and the remedy.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from gpunode.base.comparison import finding_message
from gpunode.base.errors import CodedError
from gpunode.base.findings import Finding, FindingClass
from gpunode.base.messages import command_error
from gpunode.base.structured_text import TextError, load_json
from gpunode.system.readiness import Outcome, Stage

_LOOK = "look at the machine's console, or give it more time by --wait"
_OTHER_FAILED = "not waited for: another machine failed ({other}); until then: {why}"
_LOOK_THERE = "look at {other} first"
_TOO_SLOW = "did not come up in {seconds:g} s: {why}"
CAME_UP = finding_message(
    "machine", "came up", "A test machine of a CI job did not come up.",
    "`gpunode ci` waits for SSH and for cloud-init. The machine could not be reached in that time, cloud-init failed "
    "on it, or gpunode stopped waiting because another machine failed.",
    causes=(_OTHER_FAILED, _TOO_SLOW), remedies=(_LOOK, _LOOK_THERE),
    classes=(FindingClass.ERROR, FindingClass.UNREACHABLE),
)  # fmt: skip


def came_up(outcomes: Mapping[str, Outcome], seconds: float) -> dict[str, Finding]:
    """Return a finding per machine.

    + outcomes: as `gpunode.system.readiness.awaited` left them
    + seconds: that the machines had; a failed one ends the waiting for all, so that the others did not have them
    """
    failed = [name for name, outcome in outcomes.items() if outcome.stage is Stage.FAILED]
    return {name: _of(outcome, failed, seconds) for name, outcome in outcomes.items()}


def _of(outcome: Outcome, failed: list[str], seconds: float) -> Finding:
    if outcome.stage is Stage.READY:
        return CAME_UP.finding(FindingClass.OK, outcome.why, "ready")
    if outcome.stage is Stage.FAILED:
        return CAME_UP.finding(FindingClass.ERROR, "failed", "ready", cause=outcome.why, remedy=outcome.remedy)
    if failed:
        cause, remedy = _OTHER_FAILED.format(other=failed[0], why=outcome.why), _LOOK_THERE.format(other=failed[0])
        return CAME_UP.finding(FindingClass.UNREACHABLE, "not waited for", "ready", cause=cause, remedy=remedy)
    desired, cause = f"ready in {seconds:g} s", _TOO_SLOW.format(seconds=seconds, why=outcome.why)
    return CAME_UP.finding(FindingClass.UNREACHABLE, outcome.stage, desired, cause=cause, remedy=_LOOK)


Machine = tuple[str, dict[str, Any]]

# The variable that names a source -> what it holds.
SOURCES = {
    "GPUNODE_CI_HOST": "one address, or several with commas between",
    "GPUNODE_CI_MACHINES": "a JSON file, as `terraform output -json` writes it",
    "GPUNODE_CI_SSH_CONFIG": "a file that `vagrant ssh-config` wrote",
}
# The output of Terraform's that holds the machines, unless another is named.
OUTPUT = "gpu_nodes"
# What a machine of a JSON file may say of itself.
_FIELDS = ("name", "address", "port", "user", "key")
_NAME = re.compile(r"[A-Za-z0-9_.:\[\]-]+")


class MachinesError(CodedError):
    """Say what is wrong with the source of a CI job's machines."""

    code = command_error(
        "ci.machines", "The source of a CI job's machines cannot be used.",
        "The environment names no source or several, or the source is not of the form it needs. No machine was "
        "contacted.",
        remedy="set exactly one of the variables that the message lists, and GPUNODE_CI_KEY (docs/how-to/ci.md)",
    )  # fmt: skip


def machines_from(environment: Mapping[str, str]) -> list[Machine]:
    """Return the machines that the environment names; raise MachinesError."""
    named = [name for name in SOURCES if environment.get(name)]
    if len(named) != 1:
        told = "; ".join(f"{name}: {what}" for name, what in SOURCES.items())
        found = " and ".join(named) + " are set" if named else "none is set"
        raise MachinesError(f"{found}: set exactly one of these, which says where the machines are. {told}")
    (source,) = named
    machines = [_machine(one, source, environment) for one in _found(source, environment)]
    names = [name for name, _ in machines]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise MachinesError(f"{source}: {twice[0]} stands there twice: give each machine a name of its own")
    return machines


def known_hosts_made(machines: Iterable[Mapping[str, Any]]) -> None:
    """Make the known hosts files of machines whose keys are to be noted: ssh notes nothing in a file that is missing.

    Raises MachinesError where one cannot be made.
    """
    for path in {
        Path(data["ssh_known_hosts_file"])
        for data in machines
        if data.get("ssh_strict_host_key_checking") == "accept-new" and data.get("ssh_known_hosts_file")
    }:
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.touch(mode=0o600)
        except OSError as error:
            raise MachinesError(f"{path}: new host keys cannot be noted there: {error.strerror}") from error


def _found(source: str, environment: Mapping[str, str]) -> list[dict[str, Any]]:
    value = environment[source]
    if source == "GPUNODE_CI_MACHINES":
        return _of_json(Path(value), environment.get("GPUNODE_CI_OUTPUT"))
    if source == "GPUNODE_CI_SSH_CONFIG":
        return _of_ssh_config(Path(value))
    return [{"address": address} for address in re.split(r"[,\s]+", value.strip(", "))]


def _machine(one: Mapping[str, Any], source: str, environment: Mapping[str, str]) -> Machine:
    address = one["address"]
    if not _NAME.fullmatch(address):
        raise MachinesError(f"{source}: {address!r} is no address of a machine")
    name = one.get("name") or address
    if not _NAME.fullmatch(name):
        # pyinfra would take `@local` for this machine itself.
        raise MachinesError(f"{source}: {name!r} is no name of a machine: letters, digits and . _ - : are")
    user = one.get("user") or environment.get("GPUNODE_CI_USER") or "root"
    key = one.get("key") or environment.get("GPUNODE_CI_KEY")
    if not key:
        raise MachinesError(f"{source}: {name} has no SSH key: set GPUNODE_CI_KEY to the path of the private key")
    known_hosts = environment.get("GPUNODE_CI_KNOWN_HOSTS") or "~/.ssh/known_hosts"
    checking = environment.get("GPUNODE_CI_HOST_KEYS") or "yes"
    if checking not in ("yes", "accept-new"):
        raise MachinesError(
            f"GPUNODE_CI_HOST_KEYS is {checking!r}; allowed are yes (every key stands in the known hosts file), "
            "and accept-new (the key of a machine that was made a minute ago is noted at the first connection)"
        )
    return name, {
        "ssh_hostname": address,
        "ssh_port": one.get("port") or 22,
        "ssh_user": user,
        "ssh_key": str(Path(key).expanduser()),
        "ssh_known_hosts_file": str(Path(known_hosts).expanduser()),
        "ssh_strict_host_key_checking": checking,
        "_sudo": user != "root",
    }


def _of_json(path: Path, output: str | None) -> list[dict[str, Any]]:
    try:
        content = load_json(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise MachinesError(f"{path}: {error.strerror}") from error
    except TextError as error:
        raise MachinesError(f"{path}: cannot be read as JSON: {error}") from error
    outputs = {
        name: entry["value"]
        for name, entry in (content.items() if isinstance(content, dict) else ())
        if isinstance(entry, dict) and "value" in entry
    }
    if outputs or output:
        desired = output or (OUTPUT if OUTPUT in outputs else next(iter(outputs)) if len(outputs) == 1 else OUTPUT)
        if desired not in outputs:
            actual = ", ".join(sorted(outputs)) or "none"
            raise MachinesError(
                f"{path}: there is no output {desired}; there are: {actual}. GPUNODE_CI_OUTPUT names the one to use"
            )
        content, where = outputs[desired], f"{path}: {desired}"
    else:
        where = str(path)
    return described(content, where)


def described(content: Any, where: str) -> list[dict[str, Any]]:
    """Return the machines that an address, a list or a mapping describes: address, and name, port, user, key if said.

    where: what to name it; raise MachinesError
    """
    if isinstance(content, str):
        content = [content]
    if not isinstance(content, dict | list):
        raise MachinesError(f"{where}: must be an address, a list of machines, or a mapping of name to machine")
    if not content:
        raise MachinesError(f"{where}: holds no machine")
    pairs = content.items() if (named := isinstance(content, dict)) else enumerate(content)
    return [
        _checked(
            {"address": entry} if isinstance(entry, str) else entry,
            {"name": str(key)} if named else {},
            f"{where}.{key}" if named else f"{where}[{key}]",
        )
        for key, entry in pairs
    ]


def _checked(entry: Any, more: dict[str, str], where: str) -> dict[str, Any]:
    if not isinstance(entry, dict) or not isinstance(entry.get("address"), str):
        raise MachinesError(f"{where}: must be an address, or a mapping with `address` in it")
    unknown = sorted(set(entry) - set(_FIELDS))
    if unknown:
        raise MachinesError(f"{where}.{unknown[0]}: is not known; allowed are {', '.join(_FIELDS)}")
    for field in ("name", "user", "key"):
        if not isinstance(entry.get(field, ""), str):
            raise MachinesError(f"{where}.{field}: must be text")
    port = entry.get("port", 22)
    if isinstance(port, bool) or not isinstance(port, int) or not 0 < port < 65536:
        raise MachinesError(f"{where}.port: must be a whole number from 1 to 65535")
    return {**more, **entry}


def _of_ssh_config(path: Path) -> list[dict[str, Any]]:
    # Late: no other source needs it, and it takes a while.
    import paramiko

    try:
        config = paramiko.SSHConfig.from_path(str(path))
        # A pattern names no machine; and `Host *` is in every SSHConfig.
        names = sorted(name for name in config.get_hostnames() if not set(name) & set("*?!"))
        found = [(name, config.lookup(name)) for name in names]
    except OSError as error:
        raise MachinesError(f"{path}: {error.strerror}") from error
    except (paramiko.SSHException, UnicodeDecodeError, ValueError) as error:
        raise MachinesError(f"{path}: is no SSH configuration: {error}") from error
    if not found:
        raise MachinesError(f"{path}: names no machine; `vagrant ssh-config > {path.name}` writes one per machine")
    for name, entry in found:
        lost = [option for option in ("ProxyCommand", "ProxyJump", "HostKeyAlias") if option.lower() in entry]
        if lost := lost + ["a second IdentityFile"] * (len(entry.get("identityfile", ())) > 1):
            how = "remove it, or name the file by ssh_config_file in an inventory of your own"
            raise MachinesError(f"{path}: {name} has {', '.join(lost)}, which is not carried over: {how}")
    return [
        _checked(
            {
                "name": name,
                "address": entry["hostname"],
                "port": int(entry["port"]) if entry.get("port", "").isdecimal() else 22,
                **({"user": entry["user"]} if "user" in entry else {}),
                **({"key": entry["identityfile"][0].strip('"')} if "identityfile" in entry else {}),
            },
            {},
            f"{path}: {name}",
        )
        for name, entry in found
    ]
