"""What a node runs to bring itself to what a signed bundle asks: `python3 pull.py`, by a timer, as root.

It stands on the node as one file and needs Python's standard library and ssh-keygen. In this order: fetch, verify the
signature over the bytes as they came, read them, judge host, time and number, have the program that the bundle names by
its digest, and run that. Whatever is refused before that changes nothing on the node, and is told: in the report that
the controller collects, in a metric, and by the exit status, which is gpunode's (0, 1, 2, or 3 for what is refused).
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import os
import platform
import shutil
import socket
import ssl
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

NAMESPACE, SIGNER = "gpunode-bundle", "gpunode"
# Versions of a bundle, of state.json, of the report, and of the document in it where gpunode printed none.
SCHEMA, STATE_SCHEMA, REPORT_SCHEMA, DOCUMENT_SCHEMA = 1, 1, 1, 3
# One file, so that nobody fetches the text of one bundle with the signature of another: the signature, then the text.
BUNDLE, END = "bundle.signed", b"-----END SSH SIGNATURE-----\n"
# The most bytes of a bundle or report, and of a program; a server has these seconds for an answer as a whole, and for
# each further part of it as long as this rate takes, in bytes per second.
MOST, MOST_OF_PROGRAM, SECONDS, LEAST_RATE = 1 << 20, 512 << 20, 60.0, 64 << 10
# Seconds that a pull may take as a whole: less than its unit's TimeoutStartSec, which ends it without a report.
LONGEST, _STARTED = 10500.0, time.monotonic()
# The digests of an unpacked program's files, in its folder.
DIGESTS = "sha256.json"
# What takes the node's lock, in the program's folder.
LOCK = "site-packages/gpunode/templates/scripts/node_lock.sh"
# Seconds that it waits for a push that is at work on this node.
PATIENCE = 7200.0
# What a report calls the thing that was judged.
COMPONENT, WHAT = "agent", "bundle"
# What of the program's own repository is carried out.
OWN = ("config.py", "deploys/gpu_node.py")
_INSTALL = "install the agent again: `gpunode agent install`"


@dataclass(frozen=True)
class Places:
    """Hold where things are on the node; tests have others."""

    config: Path = Path("/etc/gpunode/agent.json")
    signers: Path = Path("/etc/gpunode/agent-signers")
    state: Path = Path("/var/lib/gpunode/agent")
    lock: Path = Path("/var/lib/gpunode/agent.lock")
    programs: Path = Path("/opt/gpunode")

    @property
    def private(self) -> Path:
        """Return the folder that root alone may read: settings may hold what others are not to know."""
        return self.state / "private"

    @property
    def states(self) -> tuple[Path, Path]:
        """Return the files that each hold what was taken last: one damaged file is no way to older bundles."""
        return self.private / "state.json", self.private / "state-copy.json"

    @property
    def report(self) -> Path:
        """Return the report that the controller collects."""
        return self.state / "report.json"


@dataclass(frozen=True)
class Config:
    """Hold what installing the agent wrote: whose bundles, from where, and where a metric is to go."""

    source: str
    host: str
    ca: str | None = None
    textfile: str | None = None

    def __post_init__(self) -> None:
        if not all(isinstance(each, str) for each in (self.source, self.host, self.ca or "", self.textfile or "")):
            raise TypeError("texts are missing")


class Refused(Exception):
    """Say why nothing was done: by which code, what is wrong, and what to do."""

    def __init__(self, code: str, cause: str, remedy: str) -> None:
        super().__init__(cause)
        self.code, self.cause, self.remedy = code, cause, remedy


def fetched(config: Config, name: str, most: int) -> bytes:
    """Return a file of the source; raise Refused. Nothing but HTTPS and folders is read, wherever a server points."""
    url = f"{config.source.rstrip('/')}/{quote(name)}"
    received, failed, began = bytearray(), [], time.monotonic()

    def receive() -> None:
        try:
            with _opened_url(config, url) as answer:
                while len(received) <= most and (part := answer.read(1 << 14)):
                    received.extend(part)
        except Exception as error:
            failed.append(error)

    # A socket's timeout counts for one read; a thread can be left at any moment.
    thread = threading.Thread(target=receive, daemon=True)
    thread.start()
    while thread.is_alive() and not failed:
        left = began + SECONDS + len(received) / LEAST_RATE - time.monotonic()
        if left <= 0:
            limit = f"an answer has {SECONDS:.0f} s, and a second more for each {LEAST_RATE} bytes that have come"
            failed.append(TimeoutError(f"it was not complete after {time.monotonic() - began:.0f} s: {limit}"))
        thread.join(max(left, 0))
    if not failed and len(received) > most:
        failed.append(ValueError(f"it is larger than {most} bytes"))
    if failed:
        why = getattr(failed[0], "reason", None) or str(failed[0]) or "no reason was given"
        raise Refused(
            "agent.not-fetched", f"{url} was not fetched: {quoted(why)}",
            "check that the file is there, the server, its certificate and the network to it",
        )  # fmt: skip
    return bytes(received)


class Https(urllib.request.HTTPRedirectHandler):
    """Follow a server to another address by HTTPS alone."""

    def redirect_request(self, *given: Any) -> Any:
        """Return the request of the new address; raise URLError."""
        if urlsplit(given[-1]).scheme != "https":
            raise urllib.error.URLError(f"it points to {given[-1]}, which is not https")
        return super().redirect_request(*given)


def _opened_url(config: Config, url: str) -> Any:
    scheme = urlsplit(url).scheme
    if scheme == "file":
        return Path(urllib.request.url2pathname(urlsplit(url).path)).open("rb")
    if scheme != "https":
        raise ValueError("only https:// and file:// are read; install the agent again")
    if config.ca is not None and not Path(config.ca).is_file():
        raise ValueError(f"{config.ca}, the server's certificates, is missing; install the agent again")
    trust = ssl.create_default_context(cafile=config.ca)
    return urllib.request.build_opener(Https, urllib.request.HTTPSHandler(context=trust)).open(url, timeout=SECONDS)


def quoted(text: object) -> str:
    """Return a text of others in one line of printable characters, cut off where it is long."""
    line = "".join(each if each.isprintable() else "?" for each in " ".join(str(text).split()))
    return line if len(line) <= 500 else f"{line[:500]}..."


def verified(signed: bytes, signers: Path) -> bytes:
    """Return the bundle's text; raise Refused unless a key that this node trusts signed just these bytes."""
    if SIGNER not in signers.read_text(encoding="utf-8", errors="replace").split():
        raise _broken(f"{signers}, the keys that this node trusts, is damaged", _INSTALL)
    signature, end, bundle = signed.partition(END)
    signature += end
    with tempfile.NamedTemporaryFile() as file:
        file.write(signature)
        file.flush()
        words = ["-n", NAMESPACE, "-s", file.name]
        known = _ssh_keygen(["verify", "-f", str(signers), "-I", SIGNER, *words], bundle)
        if known.returncode == 0:
            return bundle
        # By whatever key: it tells whom to look for, and is trusted with nothing.
        by_another = _ssh_keygen(["check-novalidate", *words], bundle)
    if by_another.returncode == 0:
        key = by_another.stdout.decode(errors="replace").strip().rpartition(" ")[2]
        raise Refused(
            "agent.bundle-signer", f"the bundle is signed by a key that this node does not trust ({key})",
            "sign it by the key that the agent was installed with, or install the agent with this one",
        )  # fmt: skip
    raise Refused(
        "agent.bundle-altered", "the bundle, or its signature, is not as it was signed",
        "make the bundle anew, and look who may write where bundles lie",
    )  # fmt: skip


def _ssh_keygen(words: list[str], text: bytes) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(["ssh-keygen", "-Y", *words], input=text, capture_output=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Refused("agent.not-verified", f"ssh-keygen cannot be run: {error}", "install openssh-client") from None


def judged(bundle: bytes, host: str, last: Mapping[str, Any], now: float) -> dict[str, Any]:
    """Return what a bundle says whose signature is good; raise Refused where it is not for this node, now.

    last: number and digest of the last one that was taken; now: seconds since 1970
    """
    try:
        return _judged(bundle, host, last, now)
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as error:
        raise Refused(
            "agent.bundle-altered", f"the bundle has not what this agent reads: {error!r:.200}",
            "make the bundles again with the gpunode that installed this agent",
        ) from None  # fmt: skip


def _judged(bundle: bytes, host: str, last: Mapping[str, Any], now: float) -> dict[str, Any]:
    found = json.loads(bundle)
    _refuse_newer(found, SCHEMA, "the bundle")
    if found["host"] != host:
        raise Refused(
            "agent.bundle-host", f"the bundle is for {found['host']}, and this node is {host}",
            "look at what lies at this node's address, or install the agent for the right host",
        )  # fmt: skip
    if now >= _seconds(found["expires"]):
        raise Refused(
            "agent.bundle-expired", f"the bundle expired at {found['expires']}, and this node's clock has {utc(now)}",
            "make the bundles anew; where the clock is wrong, mend that",
        )  # fmt: skip
    digest, number = hashlib.sha256(bundle).hexdigest(), int(found["number"])
    # Kept for ever: the server may still have the bundles of these numbers.
    withdrawn = sorted({*last.get("withdrawn", ()), *found.get("withdrawn", ())})
    if number in withdrawn:
        raise Refused(
            "agent.bundle-older", f"the bundle has number {number}, which was withdrawn",
            "make a new one, without --number",
        )  # fmt: skip
    if last.get("number") in withdrawn:
        last = {}
    if number < last.get("number", 0):
        raise Refused(
            "agent.bundle-older", f"the bundle has number {number}, and this node has taken {last['number']} already",
            "make a new one, with a larger number, for what is to be gone back to",
        )  # fmt: skip
    if number == last.get("number") and digest != last["digest"]:
        raise Refused(
            "agent.bundle-older", f"this node has taken another bundle with the same number, {number}",
            "make a new one: no two bundles of a host have one number",
        )  # fmt: skip
    return {**found, "digest": digest, "withdrawn": withdrawn}


def _refuse_newer(found: Mapping[str, Any], known: int, what: str) -> None:
    """Raise Refused where a newer gpunode wrote it; without a version it is of the first one."""
    schema = found.get("schema", 1)
    if type(schema) is not int or not 1 <= schema <= known:
        raise Refused(
            "agent.newer", f"{what} has schema {schema!r}, and this agent reads {known} at most",
            "install the agent of the gpunode that wrote it: `gpunode agent install`",
        )  # fmt: skip


def _seconds(text: str) -> float:
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC).timestamp()


def utc(now: float) -> str:
    """Return a time as bundles and reports have it: 2026-01-31T12:00:00Z."""
    return datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def program(config: Config, places: Places, desired: Mapping[str, Any]) -> Path:
    """Return the folder with the program of a bundle, fetched where it is not there; raise Refused."""
    here = {"python": ".".join(platform.python_version_tuple()[:2]), "machine": platform.machine()}
    needed = {key: desired[key] for key in here}
    if needed != here:
        raise Refused(
            "agent.other-python",
            f"the bundle's gpunode is for Python {needed['python']} on {needed['machine']}, and this node has "
            f"{here['python']} on {here['machine']}",
            "make the bundle by a gpunode that runs on that Python, or install that Python here and the agent by it",
        )
    folder = places.programs / str(desired["sha256"])
    if _is_whole(folder):
        return folder
    packed = fetched(config, f"programs/{desired['sha256']}.tar.gz", MOST_OF_PROGRAM)
    if hashlib.sha256(packed).hexdigest() != desired["sha256"]:
        raise Refused(
            "agent.bundle-altered", "the program that the bundle names is not what lies there",
            "make the bundles anew, and look who may write where they lie",
        )  # fmt: skip
    for damaged in (places.programs, folder):
        if damaged.is_file() or (damaged == folder and damaged.exists()):
            _set_aside(damaged)
    places.programs.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=places.programs, prefix=".new-") as new:
        with tarfile.open(fileobj=io.BytesIO(packed), mode="r:gz") as members:
            # Older Pythons have no filter; the digest says that these are our own files.
            members.extraction_filter = getattr(tarfile, "data_filter", None)
            members.extractall(Path(new) / "program")
        (Path(new) / "program" / DIGESTS).write_text(json.dumps(_digests(Path(new) / "program")), encoding="utf-8")
        # A power cut would leave the folder with empty files, and nobody looks at them again.
        os.sync()
        (Path(new) / "program").replace(folder)
    return folder


def _is_whole(folder: Path) -> bool:
    with suppress(OSError, ValueError, RecursionError):
        return bool(json.loads((folder / DIGESTS).read_bytes()) == _digests(folder))
    return False


def _digests(folder: Path) -> dict[str, str]:
    """Return path -> SHA-256 of a program's files, without what Python compiled from them."""
    files = (path for path in folder.rglob("*") if "__pycache__" not in path.parts and path.is_file())
    found = {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
    return {path: digest for path, digest in found.items() if path != DIGESTS}


def _forget_others(places: Places, kept: Path) -> None:
    """Remove programs of earlier bundles."""
    for folder in places.programs.iterdir() if places.programs.is_dir() else ():
        if folder != kept:
            shutil.rmtree(folder, ignore_errors=True)
            with suppress(OSError):
                folder.unlink()


@contextmanager
def turn(places: Places, script: Path) -> Iterator[bool]:
    """Hold this node's lock (operations/node_lock.py); yield whether another run held it."""
    by = f"gpunode-agent.service, process {os.getpid()}"
    given = {"lock": str(places.lock), "by": by, "patience": f"{PATIENCE:.0f}", "waits": "yes"}
    began, holder, pipe = utc(time.time()), "", subprocess.PIPE
    with subprocess.Popen(["sh", script], env={**os.environ, **given}, stdin=pipe, stdout=pipe, text=True) as process:
        for line in process.stdout or ():
            if line == "taken\n":
                yield bool(holder)
                return
            # `waits PROCESS SINCE HOLDER`, or `foreign PROCESS USER`, whose file is replaced.
            word, process_id, *more = [*quoted(line).split(maxsplit=3), ""]
            holder = f"process {process_id}, since {' by '.join(more).removesuffix(' by ')}"
            if word == "foreign":
                holder = f"process {process_id} of user {more[0]}, which is not root: the file is replaced"
            print(f"the node's lock is held by {holder}", file=sys.stderr, flush=True)
    if not holder:
        raise _broken(
            f"{places.lock} cannot be locked by {script}", "read the log of gpunode-agent.service, above this"
        )
    cause = f"the node's lock was not free since {began}: it is held by {holder}"
    raise Refused("agent.busy", cause, "check whether that process hangs")


_INVENTORY = b"""\
import json, pathlib
_text = pathlib.Path(__file__).with_name('settings.json').read_text(encoding='utf-8')
gpu_nodes = [('@local', json.loads(_text))]
"""


def carried_out(places: Places, folder: Path, found: Mapping[str, Any], last: Mapping[str, Any]) -> dict[str, Any]:
    """Bring the node to the bundle's settings; return the document of the last command that gpunode ran for it."""
    work = places.private / "run"
    own = folder / "site-packages" / "gpunode" / "repository"
    for name in OWN:
        _replace(work / name, (own / name).read_bytes(), 0o600)
    places.private.chmod(0o700)
    # By the Python that runs this, which need not be the first on the PATH.
    _, _, text = (folder / "bin" / "pyinfra").read_bytes().partition(b"\n")
    _replace(work / "bin" / "pyinfra", b"#!" + os.fsencode(sys.executable) + b"\n" + text, 0o700)
    # What runs tell while they are at work; each has a folder of its own, beside the lock that they share.
    for old in (work / ".apply").glob("*/[0-9]*"):
        shutil.rmtree(old, ignore_errors=True)
    _replace(work / "settings.json", json.dumps(found["settings"]).encode(), 0o600)
    _replace(work / "node.py", _INVENTORY, 0o600)
    if last.get("digest") == found["digest"] and last.get("whole"):
        # Nothing new is asked for: one reading tells whether it is still so.
        seen = _gpunode(folder, work, "drift", "--output", "json", "node.py")
        if seen.get("exit_code") == 0:
            return seen
    # It may boot the node, which ends this: the next pull goes on then, and does not only look.
    _keep(places, {**_state(places), "whole": False})
    return _gpunode(folder, work, "apply", "--yes", "--output", "json", "node.py")


def _gpunode(folder: Path, work: Path, *words: str) -> dict[str, Any]:
    environment = {
        "HOME": "/root",
        "LANG": "C.UTF-8",
        "PATH": f"{work / 'bin'}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "PYTHONPATH": str(folder / "site-packages"),
        "PYTHONDONTWRITEBYTECODE": "",
        # This process holds the node's lock for it.
        "GPUNODE_PULL": "1",
        # What it finds stands in the report, which a controller collects.
        "GPUNODE_HISTORY": "none",
    }
    log, left = work / "log", max(60, LONGEST - (time.monotonic() - _STARTED))
    _replace(log, b"", 0o600)
    try:
        with log.open("wb") as errors:
            done = subprocess.run(
                [sys.executable, "-c", "from gpunode.cli import main; main()", *words], timeout=left,
                cwd=work, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors,
            )  # fmt: skip
        found: dict[str, Any] = json.loads(done.stdout)
        return found
    except subprocess.TimeoutExpired:
        why = f"did not end within {left:.0f} s"
    except (ValueError, RecursionError):
        why = f"ended with {done.returncode}"
        # A damaged one has no digest; the next run compiles it again.
        for compiled in Path(environment["PYTHONPATH"]).rglob("__pycache__"):
            shutil.rmtree(compiled, ignore_errors=True)
    last = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-3:]
    raise _broken(f"gpunode {words[0]} {why}: {quoted('; '.join(last))}", f"look at {log}")


def finding(refused: Refused) -> dict[str, Any]:
    """Return what a report tells of a bundle that was refused."""
    nothing = dict.fromkeys(("actual", "desired", "source", "disruption", "since"))
    return {
        "code": refused.code, "component": COMPONENT, "class": "error", "what": WHAT, **nothing,
        "cause": refused.cause, "remedy": refused.remedy,
    }  # fmt: skip


def report(
    config: Config, now: float, last: Mapping[str, Any], found: Mapping[str, Any], refused: Refused | None
) -> dict[str, Any]:
    """Return the report: gpunode's document of this one host, and of the agent itself.

    found: what gpunode printed, empty where it was not run; last: what state.json says after it
    """
    hosts = found.get("hosts") or {}
    host = hosts.get("@local") or {"class": "error", "summary": None, "findings": []}
    alone = found.get("left_alone") or {}
    findings = list(host["findings"])
    status = 3 if refused is not None else int(found.get("exit_code", 1))
    if refused is not None:
        findings.append(finding(refused))
    elif "@local" in alone:
        findings.append(finding(_broken(alone["@local"], "read the log on the node")))
    for each in [found] if "error" in found else found.get("errors") or ():
        code = str(each.get("code") or "agent.run-broken")
        findings.append(finding(Refused(code, str(each["error"]), "see `gpunode explain " + code + "`")))
    if status and all(each["class"] == "ok" for each in findings):
        findings.append(finding(_broken(f"gpunode ended with {status}", "read the log on the node")))
    worst = "error" if len(findings) > len(host["findings"]) else host["class"]
    return {
        "schema": REPORT_SCHEMA,
        "document_schema": found.get("schema", 1) if hosts else DOCUMENT_SCHEMA,
        "gpunode": last.get("gpunode"),
        "inventory": config.source,
        "at": utc(now),
        "exit_code": status,
        "agent": {name: last.get(name) for name in ("number", "digest", "expires", "last_success")},
        "hosts": {config.host: {"class": worst, "summary": host.get("summary"), "findings": findings}},
    }


def metrics(told: Mapping[str, Any]) -> str:
    """Return a report as node_exporter's textfile collector takes it."""
    agent, ((_, host),) = told["agent"], told["hosts"].items()
    code = next((each.get("code") for each in host["findings"] if each.get("component") == COMPONENT), "")
    seconds = 0 if agent["last_success"] is None else _seconds(agent["last_success"])
    lines = [
        ("gpunode_agent_last_run_timestamp_seconds", "When the agent ran last.", int(_seconds(told["at"]))),
        ("gpunode_agent_last_success_timestamp_seconds", "When all was last as a bundle asks; 0: never.", int(seconds)),
        (
            "gpunode_agent_exit_code",
            "How the last run ended: 0 good, 1 error, 2 negative, 3 refused.",
            told["exit_code"],
        ),
        ("gpunode_agent_bundle_number", "Number of the last bundle that was taken.", agent["number"] or 0),
    ]
    text = "".join(f"# HELP {name} {said}\n# TYPE {name} gauge\n{name} {value}\n" for name, said, value in lines)
    refused = "gpunode_agent_refused"
    said = "Whether the last bundle was refused, and why."
    return f'{text}# HELP {refused} {said}\n# TYPE {refused} gauge\n{refused}{{code="{code}"}} {int(bool(code))}\n'


def _replace(path: Path, text: bytes, mode: int) -> None:
    """Write a file as a whole, or leave it as it was; set aside a folder in its place, and a file in its folder's."""
    for damaged in (path, *path.parents):
        if damaged.is_dir() if damaged == path else damaged.is_file():
            _set_aside(damaged)
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(mode)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink()
        raise


def _set_aside(path: Path) -> None:
    """Move a damaged file or folder of the agent's to NAME.damaged."""
    aside = path.with_name(f"{path.name}.damaged")
    shutil.rmtree(aside, ignore_errors=True)
    print(f"{path} is damaged; it is moved to {aside}", file=sys.stderr)
    path.replace(aside)


def _state(places: Places) -> dict[str, Any]:
    """Return the newer one of state.json and its copy, from which a damaged one is repaired; raise Refused."""
    read, missing, damaged = [], [], []
    for path in places.states:
        try:
            read.append(_state_from(path))
        except FileNotFoundError:
            missing.append(f"{path} is missing")
        except (OSError, AttributeError, TypeError, ValueError, RecursionError) as error:
            damaged.append(f"{path} is damaged: {quoted(error)}")
    if damaged and not read:
        remedy = f"remove {places.private} once the newest bundle is at the source: the next pull takes any bundle"
        raise _broken("; ".join(damaged), remedy)
    found: dict[str, Any] = max(read, key=lambda each: each.get("number", 0), default={})
    if len(read) == 1:
        print(f"{(damaged + missing)[0]}; it is replaced by its copy", file=sys.stderr)
        _keep(places, found)
    return found


def _state_from(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    _refuse_newer(found, STATE_SCHEMA, str(path))
    number, digest, withdrawn = found.get("number", 0), found.get("digest", ""), found.get("withdrawn", [])
    if type(number) is not int or type(digest) is not str or bool(number) != bool(digest):
        raise ValueError("number or digest")
    if type(withdrawn) is not list or any(type(each) is not int for each in withdrawn):
        raise ValueError("withdrawn numbers")
    _seconds(found.get("last_success", utc(0)))
    return found


def _keep(places: Places, state: Mapping[str, Any]) -> None:
    text = json.dumps({**state, "schema": STATE_SCHEMA}).encode()
    for path in places.states:
        _replace(path, text, 0o600)


def _asked(config: Config, places: Places, last: Mapping[str, Any], now: float) -> tuple[dict[str, Any], Path]:
    """Return what this node's bundle asks for, and the folder of its program; raise Refused."""
    bundle = verified(fetched(config, f"{config.host}/{BUNDLE}", MOST), places.signers)
    desired = judged(bundle, config.host, last, now)
    return desired, program(config, places, desired["program"])


def pull(config: Config, places: Places, now: float) -> dict[str, Any]:
    """Do all of it once; return the report, which is written, too.

    now: seconds since 1970
    """
    last: dict[str, Any] = {}
    found: dict[str, Any] = {}
    refused, began = None, time.monotonic()
    try:
        last = _state(places)
        desired, folder = _asked(config, places, last, now)
        with turn(places, folder / LOCK) as waited:
            if waited:
                # What was judged before a push may be outdated behind it: expired, or another bundle is there.
                now += time.monotonic() - began
                last = _state(places)
                desired, folder = _asked(config, places, last, now)
            # Before the run: what it may do is by this bundle, however it ends, and none that is older is taken then.
            taken = {key: desired[key] for key in ("number", "digest", "expires", "gpunode", "withdrawn")}
            whole = last.get("whole") and last.get("digest") == desired["digest"]
            before, last = last, {**last, **taken, "whole": bool(whole), "config": asdict(config)}
            _keep(places, last)
            found = carried_out(places, folder, desired, before)
            _forget_others(places, folder)
        told = report(config, now, last, found, refused)
        if told["exit_code"] == 0:
            succeeded = {**last, "last_success": told["at"], "whole": True}
            _keep(places, succeeded)
            last = succeeded
    except Refused as error:
        refused = error
    except Exception as error:
        # A full disk, say. Whatever it is, the report says so, and no report of an earlier pull passes for this one's.
        refused, found = _broken(error), {}
    return _reported(config, places, report(config, now, last, found, refused))


def _broken(error: Exception | str, remedy: str = "correct that; the next pull goes on") -> Refused:
    said = f"{type(error).__name__}: {error}" if isinstance(error, Exception) else error
    return Refused("agent.run-broken", said, remedy)


def _reported(config: Config, places: Places, told: dict[str, Any]) -> dict[str, Any]:
    """Write a report, and the metric; return what was written."""
    if (size := len(json.dumps(told, indent=1))) > MOST:
        cause = f"its report has {size} bytes, and {MOST} are allowed: the findings are left out"
        large = finding(_broken(cause, "run `gpunode drift` on the controller, which shows them"))
        hosts = {config.host: {"class": "error", "summary": None, "findings": [large]}}
        told = {**told, "exit_code": told["exit_code"] or 1, "hosts": hosts}
    _write(places.report, json.dumps(told, indent=1) + "\n", told)
    if config.textfile is not None and Path(config.textfile).is_dir():
        _write(Path(config.textfile) / "gpunode_agent.prom", metrics(told), told)
    elif config.textfile is not None:
        print(f"{config.textfile} is missing: the metric is not written", file=sys.stderr)
    return told


def _write(path: Path, text: str, told: dict[str, Any]) -> None:
    """Write what this pull tells; where that cannot be had, let nothing of an earlier one stand there."""
    try:
        _replace(path, text.encode(errors="replace"), 0o644)
    except OSError as error:
        print(f"{path} was not written: {error.strerror}", file=sys.stderr)
        with suppress(OSError):
            path.unlink(missing_ok=True)
        told["exit_code"] = told["exit_code"] or 1


def main(arguments: list[str] | None = None) -> int:
    """Pull once; print in a line how it ended, and return gpunode's exit status."""
    parser = argparse.ArgumentParser(description="Bring this node to what its signed bundle asks.")
    parser.parse_args(arguments)
    places, now = Places(), time.time()
    config = Config("", socket.gethostname())
    try:
        config = _configured(places)
        told = pull(config, places, now)
    except Exception as error:
        refused = error if isinstance(error, Refused) else _broken(error)
        told = _reported(config, places, report(config, now, {}, {}, refused))
    ((host, found),) = told["hosts"].items()
    print(f"{host}: {found['class']}, bundle {told['agent']['number']}")
    for each in found["findings"]:
        if each["class"] != "ok":
            what, cause = each.get("what"), quoted(each.get("cause"))
            print(f"  {what}: {each['class']}: {cause}; {each.get('remedy')} [{each.get('code')}]")
    return int(told["exit_code"])


def _configured(places: Places) -> Config:
    """Return what installing the agent wrote; replace it where it is damaged, and raise Refused where none is kept."""
    try:
        return Config(**json.loads(places.config.read_text(encoding="utf-8")))
    except (OSError, TypeError, ValueError, RecursionError) as error:
        kept = _state(places).get("config")
        if kept is None:
            raise _broken(f"{places.config} is damaged: {quoted(error)}", _INSTALL) from None
    config = Config(**kept)
    _replace(places.config, (json.dumps(kept, indent=1) + "\n").encode(), 0o644)
    print(f"{places.config} was damaged, and is replaced by what the last pull had", file=sys.stderr)
    return config


if __name__ == "__main__":
    sys.exit(main())
