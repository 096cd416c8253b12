"""Probes as text: what one asks of a node, and how many of them travel in one command.

A probe is POSIX shell that only reads. It prints `key=value` lines; a probe of several parts prints each part below its
section header. Because its parts are known one by one, a part that another probe has already read need not run again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from gpunode.probe_output import END, SECTION

# A node's answer is data: what it prints cannot pass for a boundary, since each batch has a mark that it cannot know.
_BOUNDARY = "gpunode:reading"
# The last command of a probe's text that found nvidia-smi hung: those after it see $wedged, in one shell or in another.
_WEDGED_STATUS = 124
WEDGED = f"wedged=yes; (exit {_WEDGED_STATUS})"


class Probe(str):
    """Be the shell command that asks for `parts`; commands of any other type are taken for changes.

    parts: (section or None, shell text) in the order in which they are printed.
    """

    parts: tuple[tuple[str | None, str], ...]

    def __new__(cls, parts: Sequence[tuple[str | None, str]]) -> Probe:
        """Return the command that prints the parts and a closing line."""
        cleaned = tuple((section, text.strip()) for section, text in parts)
        bodies = [text if section is None else f"echo '{SECTION}{section}'; {{ {text}\n}}" for section, text in cleaned]
        probe = super().__new__(cls, _safely("\n".join([*bodies, f"echo; echo {END}"])))
        probe.parts = cleaned
        return probe

    @property
    def texts(self) -> tuple[str, ...]:
        """The shell text of each part."""
        return tuple(text for _, text in self.parts)

    def lines(self, answers: Mapping[str, Sequence[str]]) -> list[str]:
        """Return what the command would print, from each part's text -> lines; KeyError where one is missing."""
        printed: list[str] = []
        for section, text in self.parts:
            if section is not None:
                printed.append(f"{SECTION}{section}")
            printed.extend(answers[text])
        return [*printed, "", END]


def batch_command(texts: Iterable[str], mark: str) -> str:
    """Return one command that runs every text in a subshell of its own, with boundaries that carry `mark`."""
    # In a subshell neither a variable nor an `exit` of one probe reaches the next, but for that one status.
    bodies = [
        f"echo '{_BOUNDARY} {mark} {number}'; (\n{text}\n); [ $? -ne {_WEDGED_STATUS} ] || wedged=yes; echo"
        for number, text in enumerate(texts)
    ]
    return _safely("\n".join([*bodies, f"echo '{_BOUNDARY} {mark} end'"]))


def batch_answers(texts: Sequence[str], mark: str, lines: Iterable[str]) -> dict[str, list[str]] | None:
    """Return text -> lines of a batch's answer; None unless every boundary is there, in order, the last one too."""
    found: list[list[str]] = []
    expected = [f"{_BOUNDARY} {mark} {number}" for number in range(len(texts))] + [f"{_BOUNDARY} {mark} end"]
    for line in (raw.rstrip("\r") for raw in lines):
        if len(found) < len(expected) and line == expected[len(found)]:
            found.append([])
        elif found:
            found[-1].append(line)
    if len(found) != len(expected):
        return None
    # Each part is followed by a line end of the batch's own, for output that ends without one.
    answers = [part[:-1] if part and not part[-1] else part for part in found]
    return dict(zip(texts, answers, strict=False))


def _safely(body: str) -> str:
    """Wrap a body so that its answer survives the way.

    The C locale, printable ASCII alone (one byte that is not UTF-8 makes pyinfra drop the rest), and status 0 (any
    other fails the host with no reason).
    """
    return f"export LC_ALL=C; {{ {body}; }} 2>/dev/null | tr -cd '\\11\\12\\40-\\176'"
