"""What apt, dpkg and apt-mark say when they fail, as cause and remedy. Pure: lines of text in, explanations out."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from urllib.parse import urlsplit

# No program's line is longer that means anything; more of it would only slow the patterns down.
_LONGEST_LINE = 2000
_MOST = 3


@dataclass(frozen=True)
class Explanation:
    """Hold why something failed, and what to do about it: a sentence each, without a full stop."""

    cause: str
    remedy: str


@dataclass(frozen=True)
class _Rule:
    """Hold a pattern that is searched in each line, and what a match means. `kind`: rules of one are told once."""

    kind: str
    pattern: re.Pattern[str]
    told: Callable[[re.Match[str]], Explanation]


def explained(lines: Iterable[str]) -> tuple[Explanation, ...]:
    """Return what the lines tell, in their order, each kind of cause once and three at most; none where they are new.

    lines: what apt or dpkg printed in the C locale
    """
    found: dict[str, Explanation] = {}
    for line in lines:
        plain = "".join(sign if sign.isprintable() else " " for sign in line[:_LONGEST_LINE])
        for rule in _RULES:
            if rule.kind not in found and (match := rule.pattern.search(plain)):
                found[rule.kind] = rule.told(match)
                break
        if len(found) == _MOST:
            break
    # A program that was killed says nothing of why, and whoever depends on what failed says only that.
    consequences = {"killed", "script"} & set(found)
    return tuple(text for kind, text in found.items() if kind not in consequences or len(found) == len(consequences))


def _host(url: str) -> str:
    try:
        return urlsplit(url).netloc.rpartition("@")[2] or url
    except ValueError:
        return url


def _held(match: re.Match[str]) -> Explanation:
    who = f"{match['name']} (process {match['pid']})" if match["name"] else f"process {match['pid']}"
    return Explanation(
        f"{who} holds {match['lock'] or 'the lock of dpkg'}, and did not let go of it in time",
        f"wait until it has ended (`ps -fp {match['pid']}`; unattended-upgrades may take long), and run again; how "
        "many seconds are waited is DPkg::Lock::Timeout in the node's apt configuration, else 300",
    )


def _full(match: re.Match[str]) -> Explanation:
    place = match.groupdict().get("path")
    return Explanation(
        f"the disk is full: {place} could not be written" if place else "a disk of the node is full",
        f"free room on the node (`df -h {place or '/ /var /boot'}`), and run again",
    )


def _changed(match: re.Match[str]) -> Explanation:
    return Explanation(
        f"{match['url']} is not the file that the repository's signed index names: it was altered, or the mirror is in "
        "the middle of an update",
        f"do not install it by hand; have {_host(match['url'])} synchronized with its source, or name another mirror "
        "in repositories, and run again",
    )


def _unfetched(match: re.Match[str]) -> Explanation:
    url, said = match["url"], match["said"].strip().rstrip(".:") or "it gave no reason"
    status = re.match(r"(\d{3})\s+(.*)", said, re.ASCII)
    if status is None:
        return Explanation(
            f"{_host(url)} cannot be reached from the node: {said}",
            f"look at the node's network, DNS, firewall and proxy, and whether the repository is up (`curl -I {url}` "
            "on the node); run again when it is",
        )
    if status[1] in ("404", "410"):
        return Explanation(
            f"{url} is gone ({said}), though the repository's index names it",
            "run again, since a repository that is being updated looks so; if it stays, have the mirror "
            "synchronized, or ask for a version that it has",
        )
    if status[1] in ("401", "403", "407"):
        return Explanation(
            f"{_host(url)} lets the node not have {url}: {said}",
            "look at the proxy's and the repository's rules of access for this node, and run again",
        )
    return Explanation(
        f"{_host(url)} fails at {url}: {said}", "have whoever runs the repository or the proxy mend it, and run again"
    )


def _other_key(match: re.Match[str]) -> Explanation:
    return Explanation(
        f"the repository {match['url']} is signed by the key {match['key']}, which is none that its entry trusts",
        "do not trust that key blindly: the mirror may have been altered. Have it signed by the publisher's key again; "
        "if the publisher says that the key has changed, set key_url and key_fingerprint in repositories",
    )


def _bad_signature(match: re.Match[str]) -> Explanation:
    return Explanation(
        f"the signature of the repository {match['url']} is refused: {match['said'].strip()}",
        "the mirror is half updated, was altered, or its key has expired: have it synchronized with its source; if the "
        "publisher says that the key has changed, set key_url and key_fingerprint in repositories",
    )


def _unsigned(match: re.Match[str]) -> Explanation:
    return Explanation(
        f"the repository {match['url']} is not signed, or no longer",
        "have it signed by the key whose fingerprint repositories names; gpunode installs nothing that is unsigned",
    )


def _without_release(match: re.Match[str]) -> Explanation:
    # A flat repository has no suite.
    folder = match["url"].rstrip("/") + (f"/dists/{match['suite']}" if match["suite"] else "")
    return Explanation(
        f"there is no repository at {match['url']}: its server has no {folder}/Release (404)",
        f"compare the address in repositories with the mirror's folders (`curl -I {folder}/Release` on the node); a "
        "mirror may lack this distribution or architecture, or be in the middle of an update",
    )


def _dated(match: re.Match[str]) -> Explanation:
    return Explanation(
        f"the index {match['url']} is {match['when']}",
        "compare the node's clock (`date`) with the time; if it is right, have the mirror synchronized",
    )


def _needs(match: re.Match[str]) -> Explanation:
    return Explanation(
        f"package {match['name'] or '(named above)'} needs {match['needed'].strip()}, but {match['but'].strip()}",
        "the repository lacks it, or something on the node keeps it away: have the mirror synchronized, look at "
        f"`apt-cache policy {match['needed'].split()[0]}` and /etc/apt/preferences.d on the node, or ask for a version "
        "that the repository has whole",
    )


def _absent(match: re.Match[str]) -> Explanation:
    return Explanation(
        f"the node's repositories have no {match['name']}{' at ' + match['version'] if match['version'] else ''}",
        "ask for a version that they have (`apt-cache madison` on the node), or have the mirror synchronized",
    )


def _interrupted(_: re.Match[str]) -> Explanation:
    return Explanation(
        "dpkg was interrupted at its work before, and what it began is not finished",
        "run again, which finishes it; if that fails, see `dpkg --audit` and `dpkg --configure -a` on the node",
    )


def _killed(match: re.Match[str]) -> Explanation:
    return Explanation(
        f"dpkg was killed at its work ({match['said']})",
        "look for the kernel's out-of-memory killer and for crashes (`journalctl -k` on the node), and run again",
    )


def _script(match: re.Match[str]) -> Explanation:
    return Explanation(
        f"a script of package {match['name']} failed ({match['said'].strip()})",
        "see its own words above; of DKMS the whole story is in /var/lib/dkms/*/*/build/make.log on the node. Mend "
        "that, and run again",
    )


def _overwrites(match: re.Match[str]) -> Explanation:
    return Explanation(
        f"{match['path']} would be overwritten: it is in package {match['name']} too",
        f"remove {match['name']} if nobody needs it, and run again",
    )


def _read_only(match: re.Match[str]) -> Explanation:
    return Explanation(
        f"a file system of the node is read-only{' at ' + match['path'] if match['path'] else ''}",
        "look for disk errors (`journalctl -k` on the node) and at /etc/fstab; mount it writable, and run again",
    )


_URL = r"(?P<url>(?:https?|file)://?[^\s']+)"
_PATH = r"(?P<path>/[^'`\s:]+)"
_LOCK = r"Could not get lock (?P<lock>\S+?)\. It is held by process (?P<pid>\d+)(?: \((?P<name>[^)]*)\))?"
_DPKG_LOCK = r"dpkg (?:frontend|database) lock was locked by another process with pid (?P<pid>\d+)(?P<lock>)(?P<name>)"
_UNSIGNED = r"(?:is not signed|is no longer signed)"
# Of several needs of one package apt names it before the first alone.
_NEEDS = (
    r"^\s*(?:(?P<name>[a-z0-9][a-z0-9+.-]+)(?::\w+)? ?:)?\s+(?:Pre)?Depends: (?P<needed>\S.*?) "
    r"but (?P<but>it is not .*|.* is to be installed.*)"
)
_VERSION = r"Version '(?P<version>[^']*)' for '(?P<name>[^']*)' was not found"
_CANDIDATE = r"Package '?(?P<name>[a-z0-9][a-z0-9+.-]+)'? has no installation candidate(?P<version>)"

_RULES = tuple(
    _Rule(kind, re.compile(pattern, re.ASCII), told)
    for kind, pattern, told in (
        ("lock", _LOCK, _held),
        ("lock", _DPKG_LOCK, _held),
        ("full", r"You don't have enough free space in (?P<path>/\S*?)\.?(?:\s|$)", _full),
        ("full", r"to '(?P<path>/[^']+?)(?:\.dpkg-new)?':.*No space left on device", _full),
        ("full", rf"(?:{_PATH}.*)?No space left on device", _full),
        ("read-only", rf"(?:{_PATH}.*)?Read-only file system", _read_only),
        ("changed", rf"Failed to fetch {_URL}\s+(?:Hash Sum mismatch|File has unexpected size)", _changed),
        ("signature", rf"Failed to fetch {_URL}\s.*NO_PUBKEY (?P<key>[0-9A-F]+)", _other_key),
        ("signature", rf"Failed to fetch {_URL}\s+(?P<said>The following signatures .*)", _bad_signature),
        ("unfetched", rf"Failed to fetch {_URL}(?P<said>.*)", _unfetched),
        ("signature", rf"GPG error: {_URL}.*NO_PUBKEY (?P<key>[0-9A-F]+)", _other_key),
        ("signature", rf"GPG error: {_URL}[^:]*:\s*(?P<said>\S.*)", _bad_signature),
        ("signature", rf"The repository '{_URL}[^']*' {_UNSIGNED}", _unsigned),
        (
            "unfetched",
            rf"The repository '{_URL} (?P<suite>\S*) Release' does not have a Release file",
            _without_release,
        ),
        ("dated", rf"Release file for {_URL} is (?P<when>(?:not valid yet|expired) \([^)]*\))", _dated),
        ("needs", _NEEDS, _needs),
        ("absent", r"Unable to locate package (?P<name>\S+)(?P<version>)", _absent),
        ("absent", _VERSION, _absent),
        ("absent", _CANDIDATE, _absent),
        ("interrupted", r"dpkg was interrupted, you must manually run", _interrupted),
        ("overwrites", rf"trying to overwrite '{_PATH}', which is also in package (?P<name>\S+)", _overwrites),
        ("script", r"installed (?P<name>\S+) package (?P<said>\S+ script subprocess .*)", _script),
        ("killed", r"Sub-process \S*dpkg (?P<said>exited unexpectedly|received .*)", _killed),
    )
)


__all__ = ["Explanation", "explained"]
