"""What installing the agent puts on a node: path -> text and mode. Pure."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from importlib.resources import files as package_files
from typing import Any
from urllib.parse import SplitResult, urlsplit

from gpunode.agent.gate import Gate
from gpunode.agent.pull import Places
from gpunode.base.errors import CodedError
from gpunode.base.messages import command_error

PLACES = Places()
PROGRAM = "/usr/local/lib/gpunode/pull.py"
CA = "/etc/gpunode/agent-ca.pem"
SERVICE, TIMER = "gpunode-agent.service", "gpunode-agent.timer"
GATE, GATE_PROGRAM = "gpunode-gate.service", "/usr/local/lib/gpunode/gate.py"
GATE_CONFIG = "/etc/gpunode/gate.json"
# What cloud-init runs at every boot, where it was cloud-init that put the agent there (gpunode/agent/bundle.py).
FIRST_PULL = "/var/lib/cloud/scripts/per-boot/gpunode-first-pull"
UNITS = "/etc/systemd/system"
# Where installing names the file of what it is to install, to its deploy.
INSTALL = "GPUNODE_AGENT"


class GateError(CodedError):
    """Say what is wrong with the API server by which a taint is to go."""

    code = command_error(
        "agent.gate", "The value of --gate is not an API server's address.",
        "--gate names the API server of the nodes' cluster, which removes a node's taint gpunode/unverified after a "
        "good pull. Nothing was done.",
        remedy="give https://HOST:PORT, as `kubectl cluster-info` prints it", exit="64",
    )  # fmt: skip


class SourceError(CodedError):
    """Say what is wrong with where bundles are to come from."""

    code = command_error(
        "agent.source", "An agent cannot fetch bundles from this address.",
        "It takes https:// and file:// addresses without user names, passwords, queries or blanks. Nothing was done.",
        remedy="give https://HOST/FOLDER, or file:///FOLDER of the nodes", exit="64",
    )  # fmt: skip


@dataclass(frozen=True)
class Install:
    """Hold what an agent is installed with.

    source: URL of the folder with bundles; signers: text of the file of trusted keys; every, spread: seconds between
    two pulls, and by how much they are spread; ca: text of certificates that the source's is judged by, None: the
    node's own; textfile: folder of node_exporter's collector; python: the program on the node; gate: what takes a taint
    off where a pull was good, None: nothing does
    """

    source: str
    signers: str
    every: int
    spread: int
    ca: str | None = None
    textfile: str | None = None
    python: str = "/usr/bin/python3"
    gate: Gate | None = None

    def to_text(self) -> str:
        """Return it as JSON."""
        return json.dumps(asdict(self))


def install_from(text: str) -> Install:
    """Return what `to_text` gave."""
    found: dict[str, Any] = json.loads(text)
    gate = found.pop("gate", None)
    return Install(**found, gate=None if gate is None else Gate(**gate))


def _split(text: str) -> SplitResult | None:
    """Return the parts of a URL; None where it is none, its port is none, or it has a query or unprintable parts."""
    try:
        found = urlsplit(text)
        return None if found.port == 0 or found.query or found.fragment or not text.isprintable() else found
    except ValueError:
        return None


def api_server(text: str) -> str:
    """Return the URL of an API server; raise GateError."""
    found = _split(text)
    if found is None or found.scheme != "https" or not found.hostname or found.username or found.path.strip("/"):
        raise GateError(f"--gate {text}: give https://HOST:PORT of the cluster's API server")
    return text.rstrip("/")


def source(text: str) -> str:
    """Return a source that an agent asks; raise SourceError."""
    found = _split(text)
    if found is not None and (found.username or found.password):
        raise SourceError("no name and no password stands in --from: every node would have it in a file that all read")
    kinds = {} if found is None else {"https": bool(found.hostname), "file": found.path.startswith("/")}
    if found is None or not kinds.get(found.scheme) or any(each in text for each in "'\"\\% "):
        raise SourceError(f"--from {text}: give https://HOST/FOLDER, or file:///FOLDER of the nodes")
    return text.rstrip("/")


def texts(desired: Install, host: str) -> dict[str, tuple[str, str]]:
    """Return path -> (text, mode) of every file of the agent on a host."""
    config = {
        "source": desired.source,
        "host": host,
        "ca": None if desired.ca is None else CA,
        "textfile": desired.textfile,
    }
    found = {
        PROGRAM: (_own("pull.py"), "755"),
        str(PLACES.config): (json.dumps(config, indent=1) + "\n", "644"),
        str(PLACES.signers): (desired.signers, "644"),
        f"{UNITS}/{SERVICE}": (_service(desired), "644"),
        f"{UNITS}/{TIMER}": (_timer(desired), "644"),
    }
    if desired.ca is not None:
        found[CA] = (desired.ca, "644")
    if desired.gate is not None:
        found[GATE_PROGRAM] = (_own("gate.py"), "755")
        found[GATE_CONFIG] = (json.dumps(asdict(desired.gate), indent=1) + "\n", "644")
        found[f"{UNITS}/{GATE}"] = (_gate(desired), "644")
    return found


def _own(name: str) -> str:
    # Without comments: EC2 takes 16 KiB of user data.
    lines = (package_files("gpunode") / "agent" / name).read_text(encoding="utf-8").splitlines(keepends=True)
    return "".join(line for line in lines if not line.lstrip().startswith("# "))


# What is there only where it is asked for.
OPTIONAL = (CA, f"{UNITS}/{GATE}", GATE_CONFIG, GATE_PROGRAM)
# All that an agent may leave on a node, whatever it was installed with; a folder with all that is in it.
LEFT = (
    PROGRAM, str(PLACES.config), str(PLACES.signers), f"{UNITS}/{SERVICE}", f"{UNITS}/{TIMER}",
    str(PLACES.state), str(PLACES.programs), *OPTIONAL, FIRST_PULL,
)  # fmt: skip


def _service(desired: Install) -> str:
    return f"""\
# Written by gpunode (gpunode agent install); changes are overwritten.
[Unit]
Description=Bring this node to what its signed bundle asks
Wants=network-online.target
After=network-online.target
[Service]
Type=oneshot
ExecStart={desired.python} -I {PROGRAM}
# A driver that is built takes its time; what a run had begun is ended, or undone, by its own unit.
TimeoutStartSec=3h
KillMode=mixed
UMask=0022
# How it ended is in the report and the metric: as a failed unit it would hide behind the first one.
SuccessExitStatus=0 1 2 3
{_THEN if desired.gate is not None else ""}"""


# It waits for the node to join, which may be long behind the first pull.
_THEN = f"ExecStartPost=/usr/bin/systemctl --no-block restart {GATE}\n"


def _gate(desired: Install) -> str:
    return f"""\
# Written by gpunode (gpunode agent install); changes are overwritten.
[Unit]
Description=Let pods onto this node once its signed bundle is brought about
[Service]
ExecStart={desired.python} -I {GATE_PROGRAM}
"""


def _timer(desired: Install) -> str:
    return f"""\
# Written by gpunode (gpunode agent install); changes are overwritten.
[Unit]
Description=Bring this node to what its signed bundle asks, from time to time
[Timer]
OnBootSec={min(600, desired.every)}
OnUnitInactiveSec={desired.every}
# Each node at its own moment, so that the server and the package mirror are not asked by all at once.
RandomizedDelaySec={desired.spread}
FixedRandomDelay=false
[Install]
WantedBy=timers.target
"""
