"""Options of ssh's command line, as Ansible's variables have them, as pyinfra's data.

What cannot be carried over is told by the option's name alone: its value may hold a password (a ProxyCommand, SetEnv).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

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
    """Return what the options of a text add to those before; tell of each that cannot be carried over."""
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
