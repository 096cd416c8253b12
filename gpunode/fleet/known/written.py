"""The files of an inventory of pyinfra's: hosts and groups, settings of all of them, and ssh's way through others."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from gpunode.base.folding import folded
from gpunode.fleet.known.machines import LOCAL, Known, KnownError, KnownHost, python_names

_REACH, _SHALL = "# --- how to reach them", "# --- what they shall have"
# Every group that the files have besides.
_ALL, _THROUGH = "nodes", "_through"
# ssh(1) reads it where no -F names another.
_OWN_CONFIG = "~/.ssh/config"
# What pyinfra and ssh find alike behind Include, whatever folder they work in.
_INCLUDED = re.compile(r"[~/][\w./@+-]*", re.ASCII)
_ALWAYS = {"ssh_known_hosts_file": "~/.ssh/known_hosts", "ssh_strict_host_key_checking": "yes"}


def files(known: Known, name: str, template: str, taken: Collection[str] = ()) -> tuple[dict[str, str], list[str]]:
    """Return path below inventories/ -> text, and what to tell of groups that have another name there.

    name: of the inventory; template: the text of a group_data file with settings
    taken: names of groups that have settings already; raise KnownError where there is no host
    """
    if not known.hosts:
        raise KnownError(f"{known.source} has no host that can be carried over" + "".join(f"\n{x}" for x in known.told))
    shared = _shared(known)
    names = python_names(known.groups, {*taken, "all", _ALL, name})
    groups = {names[group]: members for group, members in known.groups.items()}
    told = [f"group {old!r} is called {new} here" for old, new in names.items() if old != new]
    written = {
        f"{name}.py": _inventory(known, name, shared, groups),
        f"group_data/{name}.py": _group_data(known, name, shared, template),
    }
    if any(host.jump for host in known.hosts):
        included, lost = _included(known.hosts, name)
        written[f"{name}.ssh_config"] = _ssh_config(known.hosts, included)
        told += lost
    return written, told


def _shared(known: Known) -> dict[str, Any]:
    """Return the data that every host has alike, and so the group."""
    first, *others = (host.data for host in known.hosts)
    return {
        key: value
        for key, value in first.items()
        # Each host has an address of its own; a single host, too.
        if key != "ssh_hostname" and all(key in other and other[key] == value for other in others)
    }


def _inventory(known: Known, name: str, shared: Mapping[str, Any], groups: Mapping[str, Collection[str]]) -> str:
    lines = [
        f'"""Machines from {known.source}, by `gpunode init`. Settings stand in group_data/{name}.py.',
        "",
        f"gpunode check inventories/{name}.py",
        f"pyinfra inventories/{name}.py deploys/gpu_node.py --dry",
        '"""',
        "",
    ]
    if any(host.jump for host in known.hosts):
        lines += [
            "from pathlib import Path as _Path",
            "",
            "# Through which hosts ssh goes to others.",
            f'{_THROUGH} = str(_Path(__file__).with_name("{name}.ssh_config"))',
            "",
        ]
    lines += [f"{_ALL} = [", *(f"    {_host(host, shared)}," for host in known.hosts), "]"]
    for group, members in groups.items():
        lines += ["", f"{group} = [", *(f"    {literal(member)}," for member in members), "]"]
    return "\n".join(lines) + "\n"


def _host(host: KnownHost, shared: Mapping[str, Any]) -> str:
    data = {key: literal(value) for key, value in host.data.items() if key not in shared}
    if host.jump:
        data["ssh_config_file"] = _THROUGH
    if not data:
        return literal(host.name)
    return f"({literal(host.name)}, {{{', '.join(f'{literal(key)}: {value}' for key, value in data.items())}}})"


def _group_data(known: Known, name: str, shared: Mapping[str, Any], template: str) -> str:
    head, _, rest = template.partition(_REACH)
    _, _, settings = rest.partition(_SHALL)
    rule = rest.partition("\n")[0]
    data = {**_ALWAYS, **shared}
    lines = [f"{key} = {literal(value)}" for key, value in data.items()]
    without = [host for host in known.hosts if "ssh_user" not in host.data and host.name != LOCAL]
    if without and known.user is None:
        lines.insert(0, '# ssh_user = "root"  # where a host has none of its own: whoever runs gpunode')
    elif without:
        lines.insert(0, f"ssh_user = {literal(known.user)}")
    text = f"{head}{_REACH}{rule}\n" + "\n".join(lines) + f"\n\n{_SHALL}{settings}"
    return text.replace("inventories/prod.py", f"inventories/{name}.py")


def _included(hosts: Collection[KnownHost], name: str) -> tuple[str, list[str]]:
    """Return what the file for hosts behind others includes, and what is to be told of other files that they named.

    One file is for all of them: pyinfra puts an included file's lines in place of the Include, whichever Host it is of.
    """
    of: dict[str | None, list[str]] = {}
    for host in hosts:
        if host.jump:
            of.setdefault(host.data.get("ssh_config_file"), []).append(host.name)
    (first, *others) = of
    if first is not None and not others and _INCLUDED.fullmatch(first):
        return first, []
    return _OWN_CONFIG, [
        f"{folded(names)}: ssh's -F {file!r} is not carried over: ssh goes there through another host, by "
        f"inventories/{name}.ssh_config; enter there what it says, or an Include with its absolute path"
        for file, names in of.items()
        if file is not None
    ]


# pyinfra's data of a jump host -> what an ssh_config calls it.
_OPTIONS = {
    "ssh_hostname": "HostName", "ssh_user": "User", "ssh_port": "Port", "ssh_key": "IdentityFile",
    "ssh_known_hosts_file": "UserKnownHostsFile",
}  # fmt: skip


def _ssh_config(hosts: Collection[KnownHost], included: str) -> str:
    through: dict[str, list[str]] = {}
    hops = {hop.rpartition("@")[2].split(":")[0] for host in hosts for hop in (host.jump or "").split(",") if hop}
    own = []
    for host in hosts:
        address = str(host.data.get("ssh_hostname", host.name))
        if hops & {host.name, address}:
            # It is reached directly, for itself and as a jump host, of which pyinfra reads this file alone.
            options = (f"  {option} {host.data[key]}" for key, option in _OPTIONS.items() if key in host.data)
            own += ["", f"Host {' '.join(dict.fromkeys((host.name, address)))}", *options]
        elif host.jump:
            through.setdefault(host.jump, []).append(address)
    lines = [f"# By `gpunode init`: through which hosts ssh goes to others. pyinfra reads it in place of {included}."]
    for jump, names in through.items():
        lines += ["", f"Host {' '.join(dict.fromkeys(names))}", f"  ProxyJump {jump}"]
    lines += own
    # Without it pyinfra asks on the terminal whether the key of such a host is to be trusted.
    lines += ["", "Host *", "  StrictHostKeyChecking yes", "", f"Include {included}"]
    return "\n".join(lines) + "\n"


def literal(value: Any) -> str:
    """Return a text, a number or a truth value as Python writes it; in double quotes where that takes no escape."""
    if isinstance(value, str) and value.isascii() and value.isprintable() and not set(value) & set('"\\'):
        return f'"{value}"'
    return ascii(value)
