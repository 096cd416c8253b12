"""What to do about a host key that is not known, or is another one than was known: commands that can be pasted.

Pure: pyinfra's words in, a remedy out.
"""

from __future__ import annotations

import re
from shlex import quote

# `[HOST]:PORT` where the port is not 22, in pyinfra's words as in the file.
_UNKNOWN = re.compile(r"No host key for (\S+) found in known_hosts")
_CHANGED = re.compile(r"Host key for (\S+) does not match")
_WITH_PORT = re.compile(r"\[(?P<host>.+)\]:(?P<port>\d+)")


def remedy(said: str, port: int, file: str) -> str | None:
    """Return what mends a connection that failed with these words; None where they are of no host key.

    port: the one that was connected to; file: the known hosts file that was read
    """
    if found := _UNKNOWN.search(said):
        host, at = _parted(found[1], port)
        return f"{_compare(host, at)}, then `{_keyscan(host, at)} >> {quote(file)}`"
    if found := _CHANGED.search(said):
        host, at = _parted(found[1], port)
        entry = host if at == 22 else f"[{host}]:{at}"
        return (
            f"where you know why (the machine was installed anew): `ssh-keygen -f {quote(file)} -R {quote(entry)}`, "
            f"{_compare(host, at)}, then `{_keyscan(host, at)} >> {quote(file)}`; else somebody may stand in between"
        )
    return None


def _parted(name: str, port: int) -> tuple[str, int]:
    found = _WITH_PORT.fullmatch(name)
    return (found["host"], int(found["port"])) if found else (name, port)


def _compare(host: str, port: int) -> str:
    return f"compare `{_keyscan(host, port)} | ssh-keygen -lf -` with what the machine's console says of its keys"


def _keyscan(host: str, port: int) -> str:
    return f"ssh-keyscan {'' if port == 22 else f'-p {port} '}{quote(host)}"
