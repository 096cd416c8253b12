"""Hosts and groups of Ansible's, out of what `ansible-inventory --list` prints (with --export, too).

The document is what any of Ansible's dynamic inventories prints: group -> {hosts, children, vars} or a list of hosts,
and _meta.hostvars: host -> variables.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from gpunode.fleet.known.machines import LOCAL, Known, KnownError, KnownHost, Notes, is_name

# ssh(1): options that take an argument.
_TAKE = set("BbcDEeFIiJLlmOoPpQRSWw")
_HOP = r"([\w.-]+@)?[A-Za-z0-9][\w.-]*(:\d{1,5})?"
_JUMP = re.compile(rf"{_HOP}(,{_HOP})*", re.ASCII)
# How an option is called: `-o` of something else may be anything.
_NAMED = re.compile(r"-[A-Za-z0-9]|[a-z]{1,40}")
# The older words for a jump: `ssh -W %h:%p -q user@bastion`, in whatever order.
_PIPE = ("%h:%p", "[%h]:%p")
# What changes nothing of what is reached: connections that are shared, kept alive, compressed.
_OF_NO_MATTER = re.compile(
    r"(controlmaster|controlpersist|controlpath|serveralive\w+|connecttimeout|connectionattempts|compression|loglevel"
    r"|preferredauthentications|batchmode|identitiesonly|tcpkeepalive|requesttty|gssapi\w+|passwordauthentication)",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Ssh:
    """Hold what options say: user, port (as text), key, the hosts to jump through, and more of pyinfra's data."""

    user: str | None = None
    port: str | None = None
    key: str | None = None
    jump: str | None = None
    data: Mapping[str, Any] = field(default_factory=dict)


def read(text: str, before: Ssh, tell: Callable[[str], None]) -> Ssh:
    """Return what the options of a text, of ssh's command line, add to those before.

    Report each that cannot be carried over, by its name alone: its value may hold a password (a ProxyCommand, SetEnv).
    """
    try:
        words = shlex.split(text)
    except ValueError as error:
        tell(f"cannot be read as options of ssh ({error}); enter what it says by hand")
        return before
    found = before
    for option, value in _options(words):
        found = _with(found, option, value, tell)
    return found


def _options(words: list[str]) -> Iterator[tuple[str, str]]:
    """Yield (option, its argument); ssh's `-o Name=value` as (Name in lower case, value)."""
    ahead = iter(words)
    for word in ahead:
        if not word.startswith("-") or len(word) < 2:
            yield "", word
        elif word[1] in _TAKE:
            value = word[2:] or next(ahead, "")
            if word[1] == "o":
                name, _, value = re.sub(r"\s*=\s*|\s+", "=", value.strip(), count=1).partition("=")
                yield name.lower(), value
            else:
                yield word[:2], value
        else:
            yield from ((f"-{letter}", "") for letter in word[1:])


def _with(ssh: Ssh, option: str, value: str, tell: Callable[[str], None]) -> Ssh:
    match option:
        case "user" | "-l":
            return replace(ssh, user=value)
        case "port" | "-p":
            return replace(ssh, port=value)
        case "identityfile" | "-i":
            return replace(ssh, key=value)
        case "proxyjump" | "-J":
            return _through(ssh, value, tell, "ProxyJump" if option == "proxyjump" else option)
        case "proxycommand":
            return _through(ssh, _piped(value) or "", tell, "ProxyCommand")
        case "userknownhostsfile":
            if value == "/dev/null":
                tell("UserKnownHostsFile=/dev/null is not carried over: host keys are checked")
                return ssh
            return replace(ssh, data={**ssh.data, "ssh_known_hosts_file": value})
        case "stricthostkeychecking":
            if value.lower() in ("yes", "accept-new"):
                return replace(ssh, data={**ssh.data, "ssh_strict_host_key_checking": value.lower()})
            said = f"={value}" if value.lower() in ("no", "off", "ask") else ""
            tell(f"StrictHostKeyChecking{said} is not carried over: host keys are checked, put them into known_hosts")
            return ssh
        case "forwardagent" | "-A":
            return replace(ssh, data={**ssh.data, "ssh_forward_agent": value.lower() in ("", "yes")})
        case "-F":
            return replace(ssh, data={**ssh.data, "ssh_config_file": value})
    if not _OF_NO_MATTER.fullmatch(option) and option not in ("-C", "-q", "-4", "-T", "-n"):
        tell(f"{_named(option)} is not carried over; where it matters, enter it in an ssh_config_file")
    return ssh


def _named(option: str) -> str:
    if _NAMED.fullmatch(option):
        return option
    return "an option without a name" if option else "a word that is no option"


def _through(ssh: Ssh, jump: str, tell: Callable[[str], None], option: str) -> Ssh:
    if jump.lower() == "none":
        return replace(ssh, jump=None)
    if _JUMP.fullmatch(jump):
        return replace(ssh, jump=jump)
    tell(f"{option} names no jump that can be carried over; enter it in an ssh_config_file")
    return ssh


def _piped(command: str) -> str | None:
    """Return the host that a proxy command of ssh's jumps through; None where it is another command."""
    try:
        words = shlex.split(command)
    except ValueError:
        return None
    if not words or words[0].rpartition("/")[2] != "ssh":
        return None
    user, port, host, pipes = None, None, None, False
    for option, value in _options(words[1:]):
        match option:
            case "-W":
                pipes = value in _PIPE
            case "-l" | "user":
                user = value
            case "-p" | "port":
                port = value
            case "":
                if host is not None:
                    return None
                host = value
            case _ if option not in ("-q", "-A", "-T", "-n", "stricthostkeychecking", "userknownhostsfile"):
                return None
    if not pipes or host is None:
        return None
    named = f"{user}@{host}" if user and "@" not in host else host
    return f"{named}:{port}" if port else named


_ADDRESS = ("ansible_host", "ansible_ssh_host")
_PORT = ("ansible_port", "ansible_ssh_port")
_USER = ("ansible_user", "ansible_ssh_user")
_KEY = ("ansible_private_key_file", "ansible_ssh_private_key_file")
_ARGUMENTS = ("ansible_ssh_args", "ansible_ssh_common_args", "ansible_ssh_extra_args")
_BECOME = ("ansible_become", "ansible_become_user", "ansible_become_method")
_READ = {*_ADDRESS, *_PORT, *_USER, *_KEY, *_ARGUMENTS, *_BECOME, "ansible_connection"}
_SECRET = re.compile(r"pass(word|phrase|wd)?$|secret|token", re.IGNORECASE)
_NO_NEED = re.compile(r"ansible_(python_interpreter|shell_\w+|group_priority|ssh_pipelining|pipelining|remote_tmp)")
_TRUE, _FALSE = ("true", "yes", "on", "1", "y", "t"), ("false", "no", "off", "0", "n", "f", "")


def connection(name: str, variables: Mapping[str, Any], notes: Notes) -> KnownHost:
    """Return a host with its connection data; tell in notes what of its variables has no place there."""
    found = {key: value for key, value in variables.items() if _is_carried(name, key, value, notes)}
    said = {key: plain(value) for key, value in found.items()}

    def last(names: tuple[str, ...]) -> tuple[str, Any]:
        return next(((key, said[key]) for key in reversed(names) if said.get(key) is not None), ("", None))

    ssh = Ssh()
    for key in _ARGUMENTS:
        if isinstance(said.get(key), str):
            ssh = read(said[key], ssh, lambda what, key=key: notes.add(name, f"{key}: {what}"))  # type: ignore[misc]
        elif said.get(key) is not None:
            # It may be a list of options, of which any may hold a password.
            notes.add(name, f"{key}: is no text, and not carried over")
    data: dict[str, Any] = {}
    key, address = last(_ADDRESS)
    if is_name(address):
        data["ssh_hostname"] = address
    elif address is not None:
        notes.add(name, f"{key}: {address!r} is no address; enter its ssh_hostname by hand")
    key, port = last(_PORT)
    port = str(ssh.port if port is None else port)
    if port.isascii() and port.isdecimal() and 0 < int(port) < 65536:
        data["ssh_port"] = int(port)
    elif port != "None":
        notes.add(name, f"{key}: {port!r} is no port; enter its ssh_port by hand")
    for target, names, else_by in (("ssh_user", _USER, ssh.user), ("ssh_key", _KEY, ssh.key)):
        key, value = last(names)
        value = else_by if value is None else value
        if isinstance(value, str) and value:
            data[target] = value
        elif value is not None:
            notes.add(name, f"{key}: {value!r} is no text; enter its {target} by hand")
    data |= {option: value for option, value in ssh.data.items() if value is not None}
    data |= _sudo(name, said, data.get("ssh_user"), notes)
    return KnownHost(name, data, ssh.jump)


def _is_carried(host: str, key: str, value: Any, notes: Notes) -> bool:
    """Say whether a variable is one that is read; tell of it where not."""
    if isinstance(value, dict) and "__ansible_vault" in value:
        notes.add(host, f"{key}: is encrypted by ansible-vault, and not copied")
        return False
    if _SECRET.search(key):
        notes.add(host, f"{key}: a secret is not copied; use a key for ssh, and sudo without a password")
        return False
    if key not in _READ:
        why = (
            "pyinfra has no need of it"
            if _NO_NEED.fullmatch(key)
            else "not copied; gpunode's settings have their own names"
        )
        notes.add(host, f"{key}: {why}")
        return False
    if isinstance(plain(value), str) and ("{{" in plain(value) or "{%" in plain(value)):
        notes.add(host, f"{key}: holds a template of Ansible's; enter what it comes to by hand")
        return False
    return True


def plain(value: Any) -> Any:
    """Return a value that Ansible marked as not to be taken for a template, without that mark."""
    return value["__ansible_unsafe"] if isinstance(value, dict) and "__ansible_unsafe" in value else value


def _sudo(name: str, variables: Mapping[str, Any], user: str | None, notes: Notes) -> dict[str, bool]:
    """Return how a host's commands become root's."""
    said = str(variables.get("ansible_become", "")).strip().lower()
    if said not in (*_TRUE, *_FALSE):
        notes.add(name, f"ansible_become: {said!r} is neither true nor false; enter _sudo by hand")
    becomes = said in _TRUE
    method, other = variables.get("ansible_become_method", "sudo"), variables.get("ansible_become_user", "root")
    if becomes and method not in ("sudo", "ansible.builtin.sudo"):
        notes.add(name, f"ansible_become_method: gpunode becomes root by sudo, and not by {method!r}")
    if becomes and other != "root":
        notes.add(name, f"ansible_become_user: gpunode works as root, and not as {other!r}")
    if user in (None, "root"):
        return {"_sudo": True} if becomes and user is None else {}
    if not becomes:
        notes.add(name, "logs in as another user than root and has no ansible_become; gpunode takes sudo there")
    return {"_sudo": True}


SOURCE = "Ansible's inventory"
_LIST = "ansible-inventory -i INVENTORY --list"
# Groups that every inventory of Ansible's has, and that pyinfra has no use for.
_EVERY = ("all", "ungrouped")


@dataclass(frozen=True)
class _Group:
    hosts: tuple[str, ...]
    children: tuple[str, ...]
    variables: Mapping[str, Any]


def known(document: Any) -> Known:
    """Return what the document knows; raise KnownError where it is none of Ansible's."""
    if not isinstance(document, dict) or not document:
        raise KnownError(f"this is no inventory as `{_LIST}` prints it: a mapping of groups is")
    groups = {name: _group(name, entry) for name, entry in document.items() if name != "_meta"}
    of_hosts = _hostvars(document.get("_meta"))
    # dict.fromkeys: a set that keeps the inventory's order.
    in_groups = {name: dict.fromkeys(_walk(groups, name)) for name in ("all", *groups)}
    names = dict.fromkeys([*(host for each in in_groups.values() for host in each), *of_hosts])
    having = [(groups[name].variables, in_groups[name] if name != "all" else names) for name in _by_weight(groups)]
    notes, hosts, own_names = Notes(), dict[str, KnownHost](), dict[str, str]()
    for name in names:
        of_groups = [of_group for of_group, members in having if name in members]
        variables: dict[str, Any] = {}
        for each in (*of_groups, of_hosts.get(name, {})):
            variables |= each
        found = _host(name, variables, notes)
        if found is not None and found.name in hosts:
            notes.add(name, f"left out: {found.name} is there already")
        elif found is not None:
            own_names[name] = found.name
            hosts[found.name] = found
    members = {
        group: tuple(own_names[host] for host in in_groups[group] if host in own_names)
        for group in groups
        if group not in _EVERY
    }
    kept = {group: each for group, each in members.items() if each}
    return Known(SOURCE, tuple(hosts.values()), kept, notes.found())


def _host(name: str, variables: Mapping[str, Any], notes: Notes) -> KnownHost | None:
    by = plain(variables.get("ansible_connection", "ssh"))
    if not isinstance(by, str):
        notes.add(repr(name), "left out: its ansible_connection is encrypted, or no text")
        return None
    if by == "local":
        notes.add(name, f"is this machine itself (ansible_connection: local), which pyinfra calls {LOCAL}")
        return KnownHost(LOCAL)
    if by not in ("ssh", "smart", "paramiko", "paramiko_ssh", "ansible.builtin.ssh"):
        notes.add(repr(name) if not is_name(name) else name, f"left out: gpunode reaches no host by {by!r}")
        return None
    if not is_name(name):
        notes.add(repr(name), "left out: its name must be of letters, digits and . _ - : %")
        return None
    return connection(name, variables, notes)


def _group(name: str, entry: Any) -> _Group:
    if isinstance(entry, list):
        entry = {"hosts": entry}
    if not isinstance(entry, dict):
        raise KnownError(f"group {name!r} must be a mapping with hosts, children or vars, or a list of hosts")
    found: dict[str, tuple[str, ...]] = {}
    for key in ("hosts", "children"):
        value = entry.get(key) or []
        if not isinstance(value, list | dict) or not all(isinstance(one, str) for one in value):
            raise KnownError(f"group {name!r}: {key} must be a list of names, as `{_LIST}` prints it")
        found[key] = tuple(value)
    variables = entry.get("vars") or {}
    if not isinstance(variables, dict):
        raise KnownError(f"group {name!r}: vars must be a mapping")
    return _Group(found["hosts"], found["children"], variables)


def _hostvars(meta: Any) -> dict[str, Mapping[str, Any]]:
    hostvars = (meta if isinstance(meta, dict) else {}).get("hostvars") or {}
    if not isinstance(hostvars, dict) or not all(isinstance(each, dict) for each in hostvars.values()):
        raise KnownError("_meta.hostvars must be a mapping of hosts to their variables")
    return hostvars


def _walk(groups: Mapping[str, _Group], name: str) -> Iterator[str]:
    """Yield the hosts of a group, and those of its children, in the inventory's order; some maybe more than once."""
    seen: set[str] = set()
    ahead = [name]
    while ahead:
        name = ahead.pop()
        if name not in seen and name in groups:
            seen.add(name)
            yield from groups[name].hosts
            ahead += reversed(groups[name].children)


def _depths(groups: Mapping[str, _Group]) -> dict[str, int]:
    """Return how far below `all` each group is, by the longest way; raise KnownError where groups are in a circle."""
    depths = {name: 0 if name == "all" else 1 for name in groups}
    for _ in range(len(groups) + 1):
        deeper = {
            child: depths[name] + 1
            for name, group in groups.items()
            for child in group.children
            if child in depths and depths[child] <= depths[name]
        }
        if not deeper:
            return depths
        for child, depth in deeper.items():
            depths[child] = max(depths[child], depth)
    raise KnownError("groups of the inventory are children of one another, in a circle")


def _by_weight(groups: Mapping[str, _Group]) -> list[str]:
    """Return the groups that have variables (--export prints them there), the one that counts most last.

    That is the deepest; among groups of one depth Ansible goes by ansible_group_priority, then by name.
    """
    depths = _depths(groups)

    def order(name: str) -> tuple[int, int, str]:
        priority = str(groups[name].variables.get("ansible_group_priority", 1))
        return depths[name], int(priority) if re.fullmatch(r"-?[0-9]{1,9}", priority) else 1, name

    return sorted((name for name, group in groups.items() if group.variables), key=order)
