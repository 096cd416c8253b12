"""What programs say when they fail, as cause and remedy, by the rows of explanations.yaml."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator

from gpunode.base.messages import as_data, filled
from gpunode.base.tables import content
from gpunode.base.tables.reading import Row, Table, checked, table
from gpunode.base.terminal import printable

# No program's line is longer that means anything; more of it would only slow the patterns down.
LONGEST_LINE = 2000
_MOST = 3
# Kinds that follow from another one: they do not say why.
_CONSEQUENCES = {"killed", "metadata", "script", "service", "build"}
_URL = re.compile(r"(?:https?|file)://?[^\s'\"<>]+|(?<=' from )\S+(?= : )")
# What gpunode's own scripts print.
_OWN, OWN_CAUSE, OWN_REMEDY = "gpunode: ", "gpunode: cause:", "gpunode: remedy:"
_REMEDY = re.compile(rf"^{OWN_REMEDY} *(?P<what>.*\S)")
_ASIDE = re.compile(r"^gpunode: (?:remedy|caution|ended):")
# What a transaction prints when it begins to undo its change: what fails after that is not the cause.
UNDOING = "putting back what was there before"
# What an undoing prints of a file that another program wrote since (templates/scripts/keeping.sh).
KEPT = "; what it said is kept as "
# Ends a command of gpunode. pyinfra reports that a command failed, not its exit status; and programs often leave out
# that a file system is full, and who has the GPUs open.
ENDING = """|| { status=$?; { echo "gpunode: exit status $status"
timeout 5 df -lP -x squashfs -x iso9660 2>/dev/null | awk '$5 == "100%" {print "gpunode: no space is left at " $6}'
for process in $(timeout 5 find /proc/[0-9]*/fd -maxdepth 1 -lname '/dev/nvidia[0-9]*' 2>/dev/null | cut -d / -f 3 |
sort -nu); do echo "gpunode: a GPU is open in process $process ($(cat "/proc/$process/comm" 2>/dev/null))"; done
} >&2; exit $status; }"""
_ZYPPER = re.compile(r"gpunode: zypper exits (?P<code>\d{1,3})\b")
_STATUS = re.compile(r"^gpunode: exit status (?P<what>\d+)$")
_FULL = re.compile(r"^gpunode: no space is left at (?P<what>/.*)$")
GPU_OPEN = "gpunode: a GPU is open in "
_USER = re.compile(rf"^{GPU_OPEN}(?P<what>process .*)$")
# Words of a failure that processes with an open GPU may explain.
_BUSY = re.compile(r"\bin use\b|\bbusy\b|already (?:be )?loaded", re.IGNORECASE)
# The shell names itself so in its errors: it is called with that name.
_SHELL = re.compile(r"gpunode: (?:line )?\d+: ")
_PROGRAM = re.compile(r"(?!(?:env|sh)\s)(?P<name>[\w./-]+)")
_NAME = re.compile(r"(?:/\S*/)?(?P<name>[a-z][\w.+-]*): ")
# Kinds that give no cause where the script has one.
_WEAK = _CONSEQUENCES | {"busy", "memory", "missing-module", "program", "smi"}
# These say more than a script knows, where nothing else does.
_SURE = {"killed", "metadata"}
# Last lines of a program that no row explains; in a unit's journal the reason comes before what systemd prints.
_LAST = 10
_LOOK = "look for the reason in the node's journal (`journalctl --since -10min`), and run again"
_MEND = "correct what these words name on the node, and run again"


@dataclass(frozen=True)
class Explanation:
    """Hold why something failed, and what to do about it: a sentence each, without a full stop."""

    cause: str
    remedy: str


@dataclass(frozen=True)
class Rule(Row):
    """Hold a pattern that is searched in a program's words, and what a match means.

    kind: of one kind one counts; needs_url: whether the words mean this only of curl, or where an address is known: a
    message bus has such words, too
    """

    kind: str
    said: Annotated[str, AfterValidator(lambda text: re.compile(text, re.ASCII) and text)]
    cause: str
    remedy: str
    needs_url: bool = False

    def told(self, words: str, url: str = "", **more: str) -> Explanation | None:
        """Return what words of the program mean, None where they are others; `more` stands in the texts as they say.

        url: the last address in the words before them
        """
        match = re.search(self.said, words, re.ASCII)
        if match is None:
            return None
        named = {name: (value or "").strip() for name, value in match.groupdict().items()}
        url = named.get("url") or _url(words) or url
        if self.needs_url and not url and "curl" not in words.lower():
            return None
        host = _host(url) or "the server"
        named |= {"said": named.get("said", "").rstrip(".:"), "all": words.strip()}
        named |= {"url": url or "what is to be fetched", "host": host, "server": host.partition(":")[0], **more}
        remedy = filled(self.remedy, named | {"url": url or "ADDRESS"})
        return Explanation(as_data(self.cause.format_map(named).strip()), remedy)


@dataclass(frozen=True)
class Exit(Row):
    """Hold what a program means by an exit code, and what to do, None where that depends."""

    means: str
    remedy: str | None = None


_UNNAMED = Exit("a code that zypper(8) does not name")
zypper_exits = table(Table[int, Exit], "explanations.yaml", "zypper_exits")  # type: ignore[type-abstract]


@cache
def rules(program: str) -> tuple[Rule, ...]:
    """Return the rows of `node`, zypper or helm; of `access`, what a node says; or of `connection`."""
    rows = content("explanations.yaml")
    for row in rows[program]:
        for name, part in rows["parts"].items():
            row["said"] = row["said"].replace(f"@{name}@", part)
    return checked(tuple[Rule, ...], rows[program], "explanations.yaml")


def explained(lines: Iterable[str], *programs: str) -> tuple[Explanation, ...]:
    """Return what lines that programs printed mean, in their order, each kind once and three at most."""
    found = _by_kind(lines, *programs)
    kinds = found.keys() - _CONSEQUENCES or found
    return tuple(text for kind, text in found.items() if kind in kinds)


def _by_kind(lines: Iterable[str], *programs: str) -> dict[str, Explanation]:
    """Return kind -> what the lines mean, in their order, those that only follow from others among them."""
    found: dict[str, Explanation] = {}
    url = ""
    for line in lines:
        plain = printable(line[:LONGEST_LINE])
        url = _url(plain) or url
        for rule in (rule for program in programs or ("node",) for rule in rules(program)):
            if rule.kind not in found and (told := rule.told(plain, url)):
                found[rule.kind] = told
                break
        if len(found) == _MOST:
            break
    return found


def failure(lines: list[str], command: str) -> tuple[Explanation, ...]:
    """Return why a command of gpunode failed, by what it printed: what its words mean, else the words themselves."""
    lines = [line for each in lines for line in printable(each).splitlines()]
    begun = next((number for number, line in enumerate(lines) if UNDOING in line), len(lines))
    change, undoing = lines[:begun], lines[begun + 1 :]
    own, words = _parted(change)
    found, remedy = _known(change), _remedy(change)
    # The script knows better than words that follow from other ones, or that a journal has among others.
    strong = found.keys() - (_WEAK if own else _CONSEQUENCES)
    kinds = strong or (found.keys() & _SURE if own else found.keys())
    known = [text for kind, text in found.items() if kind in kinds]
    if not known and "service" in found:
        remedy = remedy or found["service"].remedy
    if remedy or not known:
        last = "; ".join(words[-_LAST:])
        cause = "; ".join(own) + (f" ({last})" if last and own and last not in own else "")
        programs = (*map(_NAME.match, reversed(words)), _PROGRAM.match(command))
        program = next((match["name"] for match in programs if match), "the operation's script")
        status = _named(_STATUS, *lines)
        how = f"failed with exit status {status}" if status else "was killed, or not run"
        cause = cause or f"{program} {how}: {last or 'it printed nothing'}"
        known.insert(0, Explanation(cause, remedy or ("" if own or last else _LOOK)))
    full = _named(_FULL, *lines)
    # A script that names a process knows which one is in the way.
    is_busy = any(map(_BUSY.search, change)) and not any("process " in each for each in own)
    users = _named(_USER, *lines) if is_busy else ""
    notes = (full and f" (no space is left at {full})") + (users and f" (a GPU is open in {users})")
    left, _ = _parted(undoing)
    after = f"; then: {'; '.join(left)}" if left else ""
    remedy = "; ".join(filter(None, (known[0].remedy, _remedy(undoing))))
    remedy = remedy or (full and f"free space at {full} if that is the reason; otherwise ") + _MEND
    return (Explanation(known[0].cause + notes + after, remedy), *known[1:])


def _known(lines: list[str]) -> dict[str, Explanation]:
    """Return kind -> what a script's lines mean; where zypper failed, by the rows of zypper, or its exit code."""
    codes = [int(match["code"]) for line in lines if (match := _ZYPPER.search(line))]
    of_zypper = bool(codes) or any("gpunode: signed by another key" in line for line in lines)
    found = _by_kind(lines, *(("zypper",) if of_zypper else ()), "node")
    if codes and not found:
        advice = zypper_exits().get(codes[-1], _UNNAMED).remedy or "see /var/log/zypper.log on the node, and run again"
        found = {"zypper": Explanation(f"zypper failed: {zypper_meaning(codes[-1])}", advice)}
    return found


def _named(pattern: re.Pattern[str], *lines: str, glue: str = ", ") -> str:
    return glue.join(dict.fromkeys(match["what"] for line in lines if (match := pattern.search(line))))


def _remedy(lines: Iterable[str]) -> str:
    """Return the remedies that a script printed, quoted: whatever runs on the node may print such a line."""
    said = _named(_REMEDY, *lines, glue="; ")
    return f"“{as_data(said)}”" if said else ""


def zypper_meaning(code: int) -> str:
    """Return what an exit code of zypper's says, for people."""
    if code > 128:
        return f"it was killed (signal {code - 128})"
    return f"it exits {code} ({zypper_exits().get(code, _UNNAMED).means})"


def _parted(lines: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return what gpunode's script prints of the failure, with the words that it quotes, and what programs print."""
    own: list[str] = []
    words: list[str] = []
    quotes = False
    for line in (line.strip() for line in lines):
        if not line or any(each.search(line) for each in (_STATUS, _FULL, _USER, _ZYPPER, _ASIDE)):
            continue
        if line.startswith(_OWN) and not _SHELL.match(line):
            own.append(line.removeprefix(_OWN).removeprefix("cause:").strip())
            quotes = own[-1].endswith(":")
        elif quotes:
            own[-1] += f"{'' if own[-1].endswith(':') else ','} {line}"
        else:
            words.append(line)
    return own, words


def _url(text: str) -> str:
    match = _URL.search(text)
    return match[0].rstrip(".,:;)]") if match else ""


def _host(url: str) -> str:
    try:
        return urlsplit(url).netloc.rpartition("@")[2] or url
    except ValueError:
        return url
