"""What a node says where it runs no command at all for the user who came: sudo, the login shell, an expired password.

Pure: lines of text in, an explanation out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from gpunode.base.explanations import Explanation

# Between cause and remedy, where both stand in one text.
REMEDY = ". Remedy: "
# sudo asks within the first lines; a long output is a command's own.
_LINES = 40
_NO_PASSWORD = "`USER ALL=(ALL) NOPASSWD: ALL` in a file of /etc/sudoers.d"


def _said(cause: str, remedy: str) -> Callable[[re.Match[str]], Explanation]:
    return lambda match: Explanation(cause.format(**match.groupdict()), remedy.format(**match.groupdict()))


# The first that is found in any line: sudo asks for a password also after it found no way to be given one.
_RULES = tuple(
    (re.compile(pattern), told)
    for pattern, told in (
        (
            r"^sudo: unable to run (?P<folder>/\S*)/pyinfra-sudo-askpass-\S+: Permission denied",
            _said(
                "sudo gets no password: {folder} of the node is mounted noexec, and pyinfra's program that says the "
                "password lies there",
                f"let sudo ask for no password ({_NO_PASSWORD}), or let programs run in this user's home, in /var/tmp, "
                "or in the folder that TMPDIR names in its environment",
            ),
        ),
        (
            r"^sudo: sorry, you must have a tty to run sudo",
            _said(
                "sudo on the node works on a terminal alone (requiretty)",
                "put `Defaults:USER !requiretty` into a file of /etc/sudoers.d there",
            ),
        ),
        (
            r"^(?P<user>\S+) is not in the sudoers file|^Sorry, user (?P<other>\S+) is not allowed to execute",
            lambda match: Explanation(
                f"user {match['user'] or match['other']} may not run this by sudo on the node",
                f"allow it ({_NO_PASSWORD}), or connect as root",
            ),
        ),
        (
            r"^sudo: \d+ incorrect password attempt",
            _said(
                "sudo on the node does not take the password that `_sudo_password` gives",
                f"put this user's own password there, or let sudo ask for none ({_NO_PASSWORD})",
            ),
        ),
        (
            r"^sudo: a password is required|^sudo-rs: interactive authentication is required",
            _said(
                "sudo on the node asks for a password, and none was given",
                f"let sudo ask for none ({_NO_PASSWORD}), connect as root, or set `_sudo_password` in the host's data, "
                "which pyinfra prints with debug-inventory",
            ),
        ),
        (
            r"^(\S+: )?(\S+: )?(\d+: )?sudo: (command )?not found",
            _said("the node has no sudo", "install it there, or connect as root and set no `_sudo`"),
        ),
        (
            r"^This account is currently not available",
            _said(
                "the login shell of this user runs no command (nologin)",
                "name another ssh_user, or give this one a shell: `usermod --shell /bin/sh USER`",
            ),
        ),
        (
            r"^Password change required but no TTY available",
            _said(
                "the password of this user has expired, and the node runs nothing before it is changed",
                "change it on the node (`passwd USER`), or let it not expire (`chage --maxdays -1 USER`)",
            ),
        ),
    )
)


def explained(lines: Iterable[str]) -> Explanation | None:
    """Return why the node ran nothing, and what to do; None where the lines say nothing of that.

    lines: what a command that failed printed
    """
    first = [line.strip() for line, _ in zip(lines, range(_LINES), strict=False)]
    for pattern, told in _RULES:
        if match := next((found for line in first if (found := pattern.search(line))), None):
            return told(match)
    return None


def sentence(explanation: Explanation) -> str:
    """Return cause and remedy as one text."""
    return f"{explanation.cause}{REMEDY}{explanation.remedy}"


def parted(reason: str | None) -> tuple[str | None, str | None]:
    """Return (cause, remedy) of a text, the remedy None where it names none."""
    if reason is None:
        return None, None
    cause, found, remedy = reason.partition(REMEDY)
    return cause, remedy if found else None
