"""What zypper means by its exit codes, and what it says when it fails, as cause and remedy."""

from __future__ import annotations

import re
from collections.abc import Iterable
from types import MappingProxyType

from gpunode.apt_errors import Explanation

# source: zypper(8), EXIT CODES
_MEANINGS = MappingProxyType(
    {
        1: "an error of zypper's own",
        2: "it was called with options that it does not know",
        3: "it was given arguments that it does not understand",
        4: "libzypp found a problem: in what packages need, in a repository, or in a lock",
        5: "it may do this as root alone",
        6: "no repository is defined",
        7: "another program is at work on the node's packages",
        8: "packages were asked for, and some of them failed to install or go",
        100: "updates are needed",
        101: "security updates are needed",
        102: "a reboot is needed",
        103: "zypper itself was updated, and wants to be run again",
        104: "no repository has what was asked for",
        105: "it was stopped by a signal",
        106: "a repository was left out, since it could not be read",
        107: "a script of a package failed after the package was installed",
    }
)
# The work was done: 100 to 103 tell of what remains, and of 106 and 107 the proof that follows says whether it matters.
GOOD = frozenset({0, 100, 101, 102, 103, 106, 107})


def meaning(code: int) -> str:
    """Return what an exit code of zypper's says, for people."""
    if code > 128:
        return f"it was killed (signal {code - 128})"
    return f"it exits {code} ({_MEANINGS.get(code, 'a code that zypper(8) does not name')})"


_REMEDIES = MappingProxyType(
    {
        4: "see zypper's own words above, mend what they name (`zypper verify`, `zypper repos -u`), and run again",
        5: "connect as root, or set _sudo in the inventory",
        6: "give the node its distribution's repositories (`zypper repos`; on SLES: SUSEConnect), and run again",
        7: "wait until it has ended, and run again; ZYPP_LOCK_TIMEOUT says how many seconds are waited, else 300",
        8: "see rpm's own words above and /var/log/zypp/history on the node; mend that, and run again",
        104: "ask for a version that is there (`zypper search -s NAME` on the node), or mend the repository",
        105: "the node went down, or somebody stopped it: run again",
    }
)


def _locked(match: re.Match[str]) -> Explanation:
    return Explanation(
        f"{match['name']} (process {match['pid']}) holds zypper's lock, and did not let go of it in time",
        f"wait until it has ended (`ps -fp {match['pid']}`; packagekitd holds it for long: `pkcon quit`), and run "
        "again; ZYPP_LOCK_TIMEOUT in the node's environment says how many seconds are waited, else 300",
    )


def _unsigned(_: re.Match[str]) -> Explanation:
    return Explanation(
        "the signature of a repository is refused: it is signed by a key that the node does not trust, or was altered",
        "do not trust that key blindly: have the mirror synchronized with its source; if the publisher says that the "
        "key has changed, set key_url and key_fingerprint in repositories",
    )


def _unreachable(match: re.Match[str]) -> Explanation:
    return Explanation(
        f"a repository cannot be reached from the node: {match['said'].strip().rstrip('.')}",
        "look at the node's network, DNS, firewall and proxy, and whether the repository is up; run again when it is",
    )


def _altered(match: re.Match[str]) -> Explanation:
    return Explanation(
        f"{match['file']} is not the file that the repository's signed index names: it was altered, or the mirror is "
        "in the middle of an update",
        "do not install it by hand; have the repository synchronized with its source, and run again",
    )


def _needs(match: re.Match[str]) -> Explanation:
    return Explanation(
        f"package {match['name']} needs {match['needed']}, which nothing provides",
        "the repository lacks it, or a lock keeps it away (`zypper locks`): have the mirror synchronized, or ask for a "
        "version that the repository has whole. kernel-default-devel is in SLES' Development Tools module, dkms in "
        "NVIDIA's own repository",
    )


def _gone(match: re.Match[str]) -> Explanation:
    return Explanation(
        f"{match['file']} is gone from {match['place']}, though the repository's index names it",
        "run again, since a repository that is being updated looks so; if it stays, have the mirror synchronized, or "
        "ask for a version that it has",
    )


def _script(match: re.Match[str]) -> Explanation:
    return Explanation(
        f"the script {match['script']} of package {match['name']} failed ({match['said']})",
        "see its own words above, and /var/log/zypp/history on the node; of DKMS the whole story is in "
        "/var/lib/dkms/*/*/build/make.log. Mend that, and run again",
    )


def _absent(match: re.Match[str]) -> Explanation:
    return Explanation(
        f"the node's repositories have no {match['name']}",
        "ask for a version that they have (`zypper search -s` on the node); on SLES see whether the module that has it "
        "is activated (`SUSEConnect -l`)",
    )


# What gpunode's own scripts say of a repository of zypper's.
_OTHER_KEY = "gpunode: signed by another key"

_RULES = (
    (re.compile(r"locked by the application with pid (?P<pid>\d+) \((?P<name>[^)]*)\)"), _locked),
    (re.compile(rf"Signature verification failed|{_OTHER_KEY}"), _unsigned),
    (re.compile(r"Digest verification failed for file '(?P<file>[^']+)'"), _altered),
    (re.compile(r"File '(?:\./)?(?P<file>[^']+)' not found on medium '(?P<place>[^']+)'"), _gone),
    (re.compile(r"Error message: (?P<said>(?:Failed to connect|Could not resolve).*)"), _unreachable),
    (re.compile(r"nothing provides (?P<needed>.+?) needed by (?:the to be installed )?(?P<name>\S+)"), _needs),
    (re.compile(r"(?P<script>%[a-z]+)\((?P<name>[^)]+)\) scriptlet failed, (?P<said>[a-z]+ [a-z]* ?\d+)"), _script),
    (re.compile(r"No provider of '(?P<name>[^']+)' found"), _absent),
)
_EXIT = re.compile(r"gpunode: zypper exits (?P<code>\d{1,3})\b")
_LONGEST_LINE = 2000
_MOST = 3


def explained(lines: Iterable[str]) -> tuple[Explanation, ...]:
    """Return what the lines tell, in their order, each cause once and three at most; none where zypper did not fail.

    Where they tell nothing that is known, the exit code does. dnf and rpm have many of the same words.
    """
    lines = list(lines)
    if not any(_EXIT.search(line[:_LONGEST_LINE]) or _OTHER_KEY in line for line in lines):
        return ()
    found: dict[int, Explanation] = {}
    code: int | None = None
    for line in (line[:_LONGEST_LINE] for line in lines):
        for number, (pattern, told) in enumerate(_RULES):
            match = pattern.search(line)
            if match is not None and len(found) < _MOST:
                found.setdefault(number, told(match))
        if match := _EXIT.search(line):
            code = int(match["code"])
    if code is None or found:
        return tuple(found.values())
    remedy = _REMEDIES.get(code, "see zypper's own words above, and /var/log/zypper.log on the node")
    return (Explanation(f"zypper failed: {meaning(code)}", remedy),)


__all__ = ["GOOD", "explained", "meaning"]
