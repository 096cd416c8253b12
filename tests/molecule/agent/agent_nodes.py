"""Helpers and data for the tests of agent."""

from __future__ import annotations

import functools
import http.server
import json
import os
import ssl
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gpunode.agent.files import SERVICE
from gpunode.agent.pull import BUNDLE
from gpunode.lab import nodes as lab_nodes
from gpunode.lab.nodes import Node
from tests.molecule.conftest import Run, command, inventory_with, out
from tests.support.certificate import self_signed

ASKED: dict[str, object] = {
    **{name: {"enabled": False} for name in ("driver", "cuda", "toolkit")},
    "containerd": {"default_runtime": "runc"},
}


SECONDS = 600


@dataclass
class Site:
    """Hold where bundles are made and served, and by which key."""

    folder: Path
    inventory: str
    source: str

    @property
    def bundles(self) -> Path:
        return self.folder / "bundles"

    @property
    def signed(self) -> Path:
        return self.bundles / "gpu-1" / BUNDLE

    def make(self, *options: str, key: str = "key") -> Run:
        run = command(
            "gpunode", "agent", "bundle", "--key", str(self.folder / key), "--out", str(self.bundles), *options,
            self.inventory,
        )  # fmt: skip
        assert run.code == 0, run.printed
        return run


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Serve a folder by HTTPS, where the node reaches this machine."""
    folder = tmp_path_factory.mktemp("agent")
    (node,) = lab_nodes.nodes(os.environ.get("GPUNODE_LAB", "default"))
    here = out(node, "ip -4 route show default").split()[2]
    for key in ("key", "another"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / key)], check=True)
    self_signed(folder / "tls.key", folder / "tls.pem", f"IP:{here}")
    (folder / "bundles").mkdir()
    server = http.server.ThreadingHTTPServer((here, 0), functools.partial(_Quiet, directory=str(folder / "bundles")))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "tls.pem", folder / "tls.key")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    inventory = inventory_with(folder, {"gpu-1": ASKED})
    yield Site(folder, inventory, f"https://{here}:{server.server_port}")
    server.shutdown()


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *given: Any) -> None:
        pass


def pulled(node: Node) -> dict[str, Any]:
    """Have the node pull now, as its timer does; return the report."""
    out(node, f"systemctl reset-failed {SERVICE}; systemctl start {SERVICE}", SECONDS)
    found: dict[str, Any] = json.loads(out(node, "cat /var/lib/gpunode/agent/report.json"))
    return found


def codes(report: dict[str, Any]) -> list[str]:
    return [each["code"] for each in report["hosts"]["gpu-1"]["findings"] if each["class"] != "ok"]
