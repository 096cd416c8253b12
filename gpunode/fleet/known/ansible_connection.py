"""Ansible's connection variables of a host as pyinfra's data; each that has no place there is told, by its name.

Where a thing has several names, the last that is set counts, as in Ansible itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from gpunode.fleet.known.machines import KnownHost, Notes, is_name
from gpunode.fleet.known.ssh_arguments import Ssh, read

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
