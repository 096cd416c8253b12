"""Commands for any login shell: sshd hands every command to it, and pyinfra writes for sh.

tcsh and csh end no quoted text at another line: they print a complaint, and run each further line of the script as a
command of their own, as root. fish knows other escapes. So a first line of every command ends it there before anything
has run; from then on that connection's commands travel in a form that all of them read alike.

Pure: text in, text out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

# What a csh says of itself; a node can print it, too, and then gets a command once more.
MARK = "gpunode: this login shell is a csh"
# In a csh, $?shell is 1: it has such a variable. In sh it is a status and a word. fish knows no $?, and runs nothing of
# a text with any mistake in it, of which it tells the first.
GUARD = f"""test "$?shell" = 1 && exec sh -c "echo '{MARK}'; exit 97"\n"""
_FISH = "fish: "
# csh on BSD ends a word at 1024 characters ("Word too long.").
_WORD = 900


def guarded(command: str) -> str:
    """Return a command that a shell other than sh's kin refuses, whole, before it runs any of it."""
    return GUARD + command


def refused(stdout: Sequence[str], stderr: Sequence[str]) -> bool:
    """Say whether that is what became of a guarded command: nothing of it has run."""
    if stdout:
        return stdout[-1].rstrip("\r") == MARK
    return any(line.startswith(_FISH) for line in stderr)


def neutral(command: str) -> str:
    """Return sh's command in words that csh, tcsh, fish and sh read alike."""
    return """sh -c 'eval "$(printf %b "$@")"' gpunode """ + " ".join(f"'{word}'" for word in _words(command))


def _words(command: str) -> Iterator[str]:
    """Yield what printf's %b makes the command of: printable ASCII without quotes, `!` and line ends."""
    word = ""
    for sign in command:
        plain = sign.isascii() and sign.isprintable() and sign not in "'!\\"
        added = sign if plain else "".join(f"\\0{byte:03o}" for byte in sign.encode())
        if len(word) + len(added) > _WORD:
            yield word
            word = ""
        word += added
    yield word
