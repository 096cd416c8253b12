"""What a node runs to bring itself to what a signed bundle asks: `python3 pull.py`, by a timer, as root.

It stands on the node as one file and needs Python's standard library and ssh-keygen. In this order: fetch, verify the
signature over the bytes as they came, read them, judge host, time and number, have the program that the bundle names by
its digest, and run that. Whatever is refused before that changes nothing on the node, and is told: in the report that
the controller collects, in a metric, and by the exit status, which is gpunode's (0, 1, 2, or 3 for what is refused).
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import http.client
import json
import os
import platform
import shutil
import ssl
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

NAMESPACE, SIGNER = "gpunode-bundle", "gpunode"
# Versions of a bundle, of state.json, of the report, and of the document in it where gpunode printed none.
SCHEMA, STATE_SCHEMA, REPORT_SCHEMA, DOCUMENT_SCHEMA = 1, 1, 1, 3
# One file, so that nobody fetches the text of one bundle with the signature of another: the signature, then the text.
BUNDLE, END = "bundle.signed", b"-----END SSH SIGNATURE-----\n"
# The most bytes of a bundle and of a program, and the seconds that a server has for each answer.
MOST, MOST_OF_PROGRAM, SECONDS = 1 << 20, 512 << 20, 60.0
# Seconds that it waits for a push that is at work on this node.
PATIENCE = 7200.0
# What a report calls the thing that was judged.
COMPONENT, WHAT = "agent", "bundle"
# What of the program's own repository is carried out.
OWN = ("config.py", "deploys/gpu_node.py")


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


class Refused(Exception):
    """Say why nothing was done: by which code, what is wrong, and what to do."""

    def __init__(self, code: str, cause: str, remedy: str) -> None:
        super().__init__(cause)
        self.code, self.cause, self.remedy = code, cause, remedy


def fetched(config: Config, name: str, most: int) -> bytes:
    """Return a file of the source; raise Refused. Nothing but HTTPS and folders is asked, wherever a server points."""
    url = f"{config.source.rstrip('/')}/{quote(name)}"
    said = f"{url} was not fetched: "
    if urlsplit(url).scheme == "file":
        try:
            with Path(urllib.request.url2pathname(urlsplit(url).path)).open("rb") as file:
                found = file.read(most + 1)
        except OSError as error:
            raise Refused(
                "agent.not-fetched", said + str(error.strerror), "put the host's bundle there, or mend the source"
            ) from None
    else:
        found = _by_https(config, url, most, said)
    if len(found) > most:
        raise Refused("agent.not-fetched", f"{said}it is larger than {most} bytes", "look at what is at this address")
    return found


def _by_https(config: Config, url: str, most: int, said: str) -> bytes:
    if urlsplit(url).scheme != "https":
        raise Refused("agent.not-fetched", f"{said}only https:// and file:// are asked", "install the agent anew")

    class Https(urllib.request.HTTPRedirectHandler):
        """Follow a server to another address by HTTPS alone."""

        def redirect_request(self, *given: Any) -> Any:
            if urlsplit(given[-1]).scheme != "https":
                raise urllib.error.URLError(f"it points to {given[-1]}, which is not https")
            return super().redirect_request(*given)

    try:
        trust = ssl.create_default_context(cafile=config.ca)
        opener = urllib.request.build_opener(Https, urllib.request.HTTPSHandler(context=trust))
        with opener.open(url, timeout=SECONDS) as answer:
            found = answer.read(most + 1)
            assert isinstance(found, bytes)
            return found
    except (OSError, ValueError, http.client.HTTPException) as error:
        # Every error of urllib's, and of ssl's, is an OSError; an answer that is garbled, or cut off, is none.
        why = getattr(error, "reason", None) or str(error) or "no reason was given"
        raise Refused(
            "agent.not-fetched", f"{said}{why}", "look at the server, its certificate and the way to it"
        ) from None


def verified(signed: bytes, signers: Path) -> bytes:
    """Return the bundle's text; raise Refused unless a key that this node trusts signed just these bytes."""
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
    return {**found, "digest": digest}


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
    if folder.is_dir():
        return folder
    packed = fetched(config, f"programs/{desired['sha256']}.tar.gz", MOST_OF_PROGRAM)
    if hashlib.sha256(packed).hexdigest() != desired["sha256"]:
        raise Refused(
            "agent.bundle-altered", "the program that the bundle names is not what lies there",
            "make the bundles anew, and look who may write where they lie",
        )  # fmt: skip
    places.programs.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=places.programs, prefix=".new-") as new, tempfile.TemporaryFile() as file:
        file.write(packed)
        file.seek(0)
        with tarfile.open(fileobj=file, mode="r:gz") as members:
            # Older Pythons have no filter; the digest says that these are our own files.
            if hasattr(tarfile, "data_filter"):
                members.extractall(Path(new) / "program", filter="data")
            else:
                members.extractall(Path(new) / "program")
        # A power cut would leave the folder with empty files, and nobody looks at them again.
        os.sync()
        (Path(new) / "program").replace(folder)
    return folder


def _forget_others(places: Places, kept: Path) -> None:
    """Remove programs of earlier bundles."""
    for folder in places.programs.iterdir() if places.programs.is_dir() else ():
        if folder != kept:
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def turn(places: Places) -> Iterator[bool]:
    """Hold this node's lock (operations/node_lock.py); yield whether another run held it."""
    places.lock.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(places.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        end = time.monotonic() + PATIENCE
        told = False
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not told:
                    print("waiting: a push from a controller is at work on this node", file=sys.stderr, flush=True)
                    told = True
                if time.monotonic() > end:
                    raise Refused(
                        "agent.busy", "a push was at work on this node all the time", "look whether it hangs"
                    ) from None
                time.sleep(1)
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"{os.getpid()} {utc(time.time())} gpunode-agent.service\n".encode())
        yield told
    finally:
        os.close(descriptor)


def carried_out(places: Places, folder: Path, found: Mapping[str, Any], last: Mapping[str, Any]) -> dict[str, Any]:
    """Bring the node to the bundle's settings; return the document of the last command that gpunode ran for it."""
    work = places.private / "run"
    (work / "deploys").mkdir(parents=True, exist_ok=True)
    places.private.chmod(0o700)
    own = folder / "site-packages" / "gpunode" / "repository"
    for name in OWN:
        (work / name).write_bytes((own / name).read_bytes())
    # By the Python that runs this, which need not be the first on the PATH.
    _, _, text = (folder / "bin" / "pyinfra").read_bytes().partition(b"\n")
    _replace(work / "bin" / "pyinfra", b"#!" + os.fsencode(sys.executable) + b"\n" + text, 0o700)
    # What runs tell while they are at work; each has a folder of its own, beside the lock that they share.
    for old in (work / ".apply").glob("*/[0-9]*"):
        shutil.rmtree(old, ignore_errors=True)
    _replace(work / "settings.json", json.dumps(found["settings"]).encode(), 0o600)
    (work / "node.py").write_text(
        "import json, pathlib\n"
        "_text = pathlib.Path(__file__).with_name('settings.json').read_text(encoding='utf-8')\n"
        "gpu_nodes = [('@local', json.loads(_text))]\n",
        encoding="utf-8",
    )
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
    with (work / "log").open("wb") as log:
        done = subprocess.run(
            [sys.executable, "-c", "from gpunode.cli import main; main()", *words],
            cwd=work, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log,
        )  # fmt: skip
    try:
        found: dict[str, Any] = json.loads(done.stdout)
        return found
    except ValueError:
        last = (work / "log").read_text(encoding="utf-8", errors="replace").strip().splitlines()[-3:]
        raise Refused(
            "agent.run-broken", f"gpunode {words[0]} ended with {done.returncode}: {'; '.join(last)}",
            f"look at {work / 'log'}",
        ) from None  # fmt: skip


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
        findings.append(finding(Refused("agent.run-broken", alone["@local"], "look at the log on the node")))
    for each in [found] if "error" in found else found.get("errors") or ():
        code = str(each.get("code") or "agent.run-broken")
        findings.append(finding(Refused(code, str(each["error"]), "see `gpunode explain " + code + "`")))
    if status and all(each["class"] == "ok" for each in findings):
        findings.append(
            finding(Refused("agent.run-broken", f"gpunode ended with {status}", "read the log on the node"))
        )
    worst = "error" if len(findings) > len(host["findings"]) else host["class"]
    return {
        "schema": REPORT_SCHEMA,
        "document_schema": found.get("schema", 1) if hosts else DOCUMENT_SCHEMA,
        "gpunode": last.get("gpunode"),
        "inventory": config.source,
        "at": utc(now),
        "exit_code": status,
        "agent": {
            "number": last.get("number"),
            "digest": last.get("digest"),
            "expires": last.get("expires"),
            "last_success": last.get("last_success"),
        },
        "hosts": {config.host: {"class": worst, "summary": host.get("summary"), "findings": findings}},
    }


def metrics(told: Mapping[str, Any]) -> str:
    """Return a report as node_exporter's textfile collector takes it."""
    agent, ((_, host),) = told["agent"], told["hosts"].items()
    code = next((each["code"] for each in host["findings"] if each["component"] == COMPONENT), "")
    seconds = 0 if agent["last_success"] is None else _seconds(agent["last_success"])
    lines = [
        ("gpunode_agent_last_run_timestamp_seconds", "When the agent ran last.", f"{_seconds(told['at']):.0f}"),
        (
            "gpunode_agent_last_success_timestamp_seconds",
            "When all was last as a bundle asks; 0: never.",
            f"{seconds:.0f}",
        ),
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
    """Write a file as a whole, or leave it as it was."""
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


def _state(places: Places) -> dict[str, Any]:
    path = places.private / "state.json"
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        _refuse_newer(found, STATE_SCHEMA, str(path))
        number, digest = found.get("number", 0), found.get("digest", "")
        if type(number) is not int or type(digest) is not str or bool(number) != bool(digest):
            raise ValueError("number or digest")
        _seconds(found.get("last_success", utc(0)))
    except FileNotFoundError:
        return {}
    except (AttributeError, TypeError, ValueError, RecursionError) as error:
        raise Refused(
            "agent.run-broken", f"{path} is damaged: {error}",
            f"remove {path} once the newest bundle is at the source: the next pull takes any bundle",
        ) from None  # fmt: skip
    return found


def _keep(places: Places, state: Mapping[str, Any]) -> None:
    _replace(places.private / "state.json", json.dumps({**state, "schema": STATE_SCHEMA}).encode(), 0o600)


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
        with turn(places) as waited:
            if waited:
                # What was judged before a push may be outdated behind it: expired, or another bundle is there.
                now += time.monotonic() - began
                last = _state(places)
                desired, folder = _asked(config, places, last, now)
            # Before the run: what it may do is by this bundle, however it ends, and none that is older is taken then.
            taken = {key: desired[key] for key in ("number", "digest", "expires", "gpunode")}
            whole = last.get("whole") and last.get("digest") == desired["digest"]
            before, last = last, {**last, **taken, "whole": bool(whole)}
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
        refused = Refused("agent.run-broken", str(error), "mend that; the next pull goes on")
    told = report(config, now, last, found, refused)
    _write(places.report, json.dumps(told, indent=1) + "\n", told)
    if config.textfile is not None and Path(config.textfile).is_dir():
        _write(Path(config.textfile) / "gpunode_agent.prom", metrics(told), told)
    return told


def _write(path: Path, text: str, told: dict[str, Any]) -> None:
    """Write what this pull tells; where that cannot be had, let nothing of an earlier one stand there."""
    try:
        _replace(path, text.encode(), 0o644)
    except OSError as error:
        print(f"{path} was not written: {error.strerror}", file=sys.stderr)
        with suppress(OSError):
            path.unlink(missing_ok=True)
        told["exit_code"] = told["exit_code"] or 1


def main(arguments: list[str] | None = None) -> int:
    """Pull once; print in a line how it ended, and return gpunode's exit status."""
    parser = argparse.ArgumentParser(description="Bring this node to what its signed bundle asks.")
    parser.parse_args(arguments)
    places = Places()
    try:
        config = Config(**json.loads(places.config.read_text(encoding="utf-8")))
    except (OSError, TypeError, ValueError) as error:
        print(f"{places.config}: {error}; install the agent again: `gpunode agent install`", file=sys.stderr)
        return 3
    told = pull(config, places, time.time())
    ((host, found),) = told["hosts"].items()
    bad = [each for each in found["findings"] if each["class"] != "ok"]
    print(f"{host}: {found['class']}, bundle {told['agent']['number']}")
    for each in bad:
        print(f"  {each['what']}: {each['class']}: {each['cause']}; {each['remedy']} [{each['code']}]")
    return int(told["exit_code"])


if __name__ == "__main__":
    sys.exit(main())
