"""What lets pods onto a node once its bundle is brought about: it takes one taint off the node's own Node object.

It stands on the node as one file beside pull.py and needs Python's standard library alone. Every pull starts it
(gpunode-gate.service). It goes by the report of the last pull, as it stands at that moment: as long as that is good it
waits for the node to join the cluster, then takes the taint off; where it is not good it ends, and the taint stays.
Its exit status: 0 the node has no such taint, or the report keeps it; 1 within the hour it did not come to that.
"""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

# The kubelet registers its node with a taint of this key (docs/how-to/first-boot.md), of whatever value and effect.
TAINT = "gpunode/unverified"
CONFIG, REPORT = Path("/etc/gpunode/gate.json"), Path("/var/lib/gpunode/agent/report.json")
# Seconds that the API server has for a whole answer; between two looks; and after which the next pull begins anew.
SECONDS, PAUSE, PATIENCE = 20.0, 10.0, 3600.0
# The most bytes of an answer that are read.
_MOST = 16 << 20


@dataclass(frozen=True)
class Gate:
    """Hold what the node's taint is taken off by: URL of the API server, and two files of the node's.

    ca: certificates that the server's is judged by; token: what the API server takes, which is never ours to bring
    """

    server: str
    ca: str
    token: str


class Later(Exception):
    """Say why it could not be done now: the next look may find it otherwise.

    absent: the cluster has no node of that name
    """

    def __init__(self, why: str, absent: bool = False) -> None:
        super().__init__(why)
        self.absent = absent


def is_good(report: Path) -> bool:
    """Say whether the last pull found everything as its bundle asks."""
    try:
        found = json.loads(report.read_text(encoding="utf-8"))
        return bool(found["exit_code"] == 0)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return False


def own_names() -> tuple[str, ...]:
    """Return the names by which a kubelet registers this machine's node now, unless its settings have another name."""
    host_name = socket.gethostname()
    try:
        # As `hostname -f` has it.
        full_name = socket.getaddrinfo(host_name, None, flags=socket.AI_CANONNAME)[0][3]
    except OSError:
        full_name = ""
    return node_names(host_name, full_name)


def node_names(host_name: str, full_name: str) -> tuple[str, ...]:
    """Return the names of a node: on clouds the machine's whole name, where the kubelet's settings have that."""
    found = dict.fromkeys(each.strip().lower() for each in (host_name, full_name))
    return tuple(name for name in found if name and name.partition(".")[0] != "localhost")


def opened_as(config: Gate, names: tuple[str, ...]) -> bool:
    """Take the taint off the node that has the first of these names; raise Later, which tells of the first."""
    absent = Later("this machine has no name of its own: it is called localhost")
    for number, name in enumerate(names):
        try:
            return opened(config, name)
        except Later as error:
            if not error.absent:
                raise
            absent = error if number == 0 else absent
    raise absent


def without(taints: list[Mapping[str, Any]]) -> list[Mapping[str, Any]] | None:
    """Return what stays of a node's taints; None where ours is not among them."""
    found = [taint for taint in taints if taint.get("key") != TAINT]
    return None if len(found) == len(taints) else found


def opened(config: Gate, name: str) -> bool:
    """Take the taint off, and say whether there was one; raise Later.

    Nobody else's taint is lost: the request names the version of the node that it was decided by, and is refused where
    somebody came between.
    """
    path = f"/api/v1/nodes/{quote(name, safe='')}"
    node = asked(config, "GET", path)
    rest = without(node.get("spec", {}).get("taints") or [])
    if rest is None:
        return False
    version = node["metadata"]["resourceVersion"]
    change = {"metadata": {"resourceVersion": version}, "spec": {"taints": rest}}
    asked(config, "PATCH", f"{path}?fieldManager=gpunode", change)
    return True


def asked(config: Gate, method: str, path: str, change: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Ask the API server, and nobody that it points to; raise Later.

    A socket's timeout counts for one read; a thread can be left at any moment, and ends with its socket.
    """
    ended: list[dict[str, Any] | Later] = []
    sockets: list[socket.socket] = []
    thread = threading.Thread(target=lambda: ended.append(_asked(config, method, path, change, sockets)), daemon=True)
    thread.start()
    thread.join(SECONDS)
    if not ended:
        for each in sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
    answer = ended[0] if ended else Later(f"{config.server} has not answered {method} {path} within {SECONDS:.0f} s")
    if isinstance(answer, Later):
        raise answer
    return answer


def _asked(
    config: Gate, method: str, path: str, change: Mapping[str, Any] | None, sockets: list[socket.socket]
) -> dict[str, Any] | Later:
    where = urlsplit(config.server)
    try:
        token = Path(config.token).read_text(encoding="ascii").strip()
        trust = ssl.create_default_context(cafile=config.ca)
        connection = http.client.HTTPSConnection(str(where.hostname), where.port or 443, timeout=SECONDS, context=trust)
        headers = {"Authorization": f"Bearer {token}", "Accept": "application/json"}
        if change is not None:
            headers["Content-Type"] = "application/merge-patch+json"
        connection.connect()
        sockets.append(connection.sock)
        connection.request(method, path, None if change is None else json.dumps(change), headers)
        answer = connection.getresponse()
        text = answer.read(_MOST)
        connection.close()
        if answer.status != 200:
            why = f"{config.server} answers {method} {path} with {answer.status}: {_message(text)}"
            return Later(why, absent=answer.status == http.client.NOT_FOUND)
        found: dict[str, Any] = json.loads(text)
        _ = found["metadata"]["resourceVersion"], without(found["spec"].get("taints") or [])
        return found
    except Exception as error:
        # Files that are not there yet, certificates, the way to the server, words that are no JSON. Of others than the
        # system's own errors the text is not told: it may hold the token.
        unusable = "its answer, or the token, cannot be used"
        why = error.strerror or str(error) if isinstance(error, OSError) else unusable
        named = f" {error.filename}" if isinstance(error, OSError) and error.filename else ""
        return Later(f"{config.server} could not be asked:{named} {why}")


def _message(text: bytes) -> str:
    try:
        words = " ".join(str(json.loads(text)["message"]).split())
        return "".join(each if each.isprintable() else "?" for each in words[:500])
    except (ValueError, KeyError, TypeError, RecursionError):
        return "no reason given"


def waited(
    config: Gate, report: Path, names: Callable[[], tuple[str, ...]], tell: Callable[[str], None],
    clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep,
) -> int:  # fmt: skip
    """Go on until the taint is off, the report is good no more, or an hour is over; return the exit status."""
    end, said = clock() + PATIENCE, ""
    while True:
        found = names()
        name = found[0] if found else "localhost"
        if not is_good(report):
            tell(f"{name}: the last pull was not good ({report} says why): a taint {TAINT} stays")
            return 0
        try:
            tell(f"{name}: " + (f"taint {TAINT} taken off" if opened_as(config, found) else f"no taint {TAINT}"))
            return 0
        except Later as error:
            if said != str(error):
                said = str(error)
                tell(f"{name}: waits: {said}")
        if clock() > end:
            tell(f"{name}: given up until the next pull: {said}")
            return 1
        sleep(PAUSE)


def main() -> int:
    """Wait for the node, and open the gate."""
    try:
        config = Gate(**json.loads(CONFIG.read_text(encoding="utf-8")))
        return waited(config, REPORT, own_names, lambda line: print(line, flush=True))
    except Exception as error:
        print(f"{CONFIG}: {error}; install the agent again: `gpunode agent install`", flush=True)
        return 1


if __name__ == "__main__":
    sys.exit(main())
