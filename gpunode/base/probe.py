"""Probes as text: what one asks of a node, and how many of them travel in one command.

A probe is POSIX shell that only reads. It prints `key=value` lines; a probe of several parts prints each part below its
section header. Because its parts are known one by one, a part that another probe has already read need not run again.
What several parts want to know of a node is asked once in a command, before the first of them.
"""

from __future__ import annotations

import base64
import gzip
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from gpunode.base.probe_output import ANSWER_SIZE, END, SECTION
from gpunode.base.shell_file import ENVIRONMENT, shell_file

# A node's answer is data: what it prints cannot pass for a boundary, since each batch has a mark that it cannot know.
_BOUNDARY = "gpunode:reading"
# Seconds after which a node ends a probe of several parts; each of their commands ends sooner, or hangs.
LONGEST = 600


class Announced(BaseException):
    """End an operation at its first probe, which is now announced; no `except Exception` may stop this."""


@dataclass(frozen=True)
class Shared:
    """Hold a question that several parts read the answer of: shell text that sets variables and functions for them.

    variable: which shell variable tells the text what its parts want, all of it together; `wanted` is one part's share
    """

    text: str
    variable: str | None = None
    desired: tuple[str, ...] = ()

    def of(self, *desired: str) -> Shared:
        """Return the question of a part that wants these."""
        return replace(self, desired=desired)


# What a host's settings say of where the driver's files stand (driver.root); a part may want no other one.
DRIVER_ROOT = Shared(":", variable="DRIVER_ROOT")


class Text(str):
    """Be the shell text of one part, and know the shared questions whose answers it reads."""

    shared: tuple[Shared, ...]

    def __new__(cls, text: str, shared: Iterable[Shared] = ()) -> Text:
        """Return the text without blank ends."""
        made = super().__new__(cls, text.strip())
        made.shared = tuple(shared)
        return made


def shell_text(name: str, shared: Iterable[Shared] = (), **values: str) -> Text:
    """Return the text of gpunode/NAME.sh behind its values, which are shell variables and never text of the shell.

    shared: the questions whose answers it reads
    """
    if wrong := [value for value in values if not value.isupper()]:
        raise ValueError(f"a value of a probe has an upper-case name: {', '.join(wrong)}")
    settings = (f"{value}={shlex.quote(text)}" for value, text in values.items())
    return Text("\n".join([*settings, shell_file(name)]), shared)


class Probe(str):
    """Be the shell command that asks for `parts`; commands of any other type are taken for changes.

    parts: (section or None, shell text) in the order in which they are printed.
    """

    parts: tuple[tuple[str | None, Text], ...]

    def __new__(cls, parts: Sequence[tuple[str | None, str]], root: str = "/") -> Probe:
        """Return the command that prints the parts and a closing line; root: where the driver's files stand."""
        made = tuple((section, _below(root, text if isinstance(text, Text) else Text(text))) for section, text in parts)
        bodies = [
            _alone(text) if section is None else f"echo '{SECTION}{section}'; {_alone(text)}" for section, text in made
        ]
        texts = [text for _, text in made]
        probe = super().__new__(cls, _safely("\n".join([*_before(texts), *bodies, f"echo; echo {END}"])))
        probe.parts = made
        return probe

    @property
    def texts(self) -> tuple[Text, ...]:
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


def _below(root: str, text: Text) -> Text:
    """Return a part that reads the driver at `root`: before any shared question, of which some run its programs."""
    return text if root == "/" else Text(text, (DRIVER_ROOT.of(root), *text.shared))


def batch_command(texts: Iterable[str], mark: str) -> str:
    """Return one command that runs every text in a subshell of its own, with boundaries that carry `mark`.

    The shell text is compressed. A node without base64 or gzip prints no boundary. It ends by itself: what hangs in a
    probe would stay on the node after the connection is closed, once more for each reading.
    """
    desired = list(texts)
    bodies = [f'echo "$BOUNDARY {number}"; {_alone(text)}; echo' for number, text in enumerate(desired)]
    text = "\n".join([*_before(desired), *bodies, 'echo "$BOUNDARY end"'])
    unpack = f"echo {_compressed(text)} | base64 -d | gzip -dc"
    limited = shlex.quote(f"""BOUNDARY='{_BOUNDARY} {mark}'; eval "$({unpack})" """)
    return _safely(f"timeout -k 5 {LONGEST} sh -c {limited}")


# Hosts of the same settings are sent the same text.
@lru_cache(maxsize=64)
def _compressed(text: str) -> str:
    """Return a text compressed by gzip, in base64."""
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()


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


def _before(texts: Iterable[str]) -> list[str]:
    """Return the functions of all probes, and the shared questions of these texts, with all that is wanted of each."""
    desired: dict[Shared, dict[str, None]] = {}
    for text in texts:
        for shared in text.shared if isinstance(text, Text) else ():
            desired.setdefault(shared.of(), {}).update(dict.fromkeys(shared.desired))
    bodies = [shell_file("base/probe")]
    for shared, names in desired.items():
        settings = f"{shared.variable}={shlex.quote(' '.join(names))}\n" if shared.variable else ""
        # What a question itself prints is nobody's answer.
        bodies.append(f"{{ {settings}{shared.text}\n}} > /dev/null")
    return bodies


def _alone(text: str) -> str:
    """Wrap a part: in a subshell neither a variable nor an `exit` of it reaches the next."""
    return f"(\n{text}\n)"


def _safely(body: str) -> str:
    """Wrap a body so that its answer survives the way.

    The C locale, printable ASCII alone (one byte that is not UTF-8 makes pyinfra drop the rest), status 0 (any other
    fails the host with no reason), and ANSWER_SIZE at most.
    """
    return f"{ENVIRONMENT}; {{ {body}; }} 2>/dev/null | tr -cd '\\11\\12\\40-\\176' | head -c {ANSWER_SIZE}"
