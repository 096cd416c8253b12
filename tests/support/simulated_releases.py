"""SIMULATED: not a cluster, but what helm and kubectl ask of one to read releases and objects, on a local port.

The real programs read it, so that what they print is real. Nothing can be written.
"""

from __future__ import annotations

import base64
import gzip
import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlparse

NAMESPACE = "gpu"


@dataclass(frozen=True)
class Stored:
    """Hold a revision as helm stores it."""

    number: int
    status: str
    description: str = ""
    manifest: str = ""
    name: str = "nvdp"
    chart: str = "nvidia-device-plugin"
    updated: str = "2026-11-20T10:00:00.123456789Z"

    def secret(self) -> dict[str, Any]:
        """Return the Secret that holds it."""
        times = {"first_deployed": self.updated, "last_deployed": self.updated, "deleted": ""}
        release = {
            "name": self.name,
            "info": {**times, "description": self.description, "status": self.status},
            "chart": {"metadata": {"name": self.chart, "version": "0.20.0", "apiVersion": "v2"}, "templates": []},
            "config": None,
            "manifest": self.manifest,
            "version": self.number,
            "namespace": NAMESPACE,
        }
        packed = base64.b64encode(base64.b64encode(gzip.compress(json.dumps(release).encode())))
        labels = {"name": self.name, "owner": "helm", "status": self.status, "version": str(self.number)}
        return {
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "helm.sh/release.v1",
            "metadata": {"name": f"sh.helm.release.v1.{self.name}.v{self.number}", "labels": labels},
            "data": {"release": packed.decode()},
        }


@contextmanager
def releases(folder: Path, stored: Sequence[Stored], live: Sequence[dict[str, Any]] = ()) -> Iterator[Path]:
    """Serve revisions, and objects of the chart's kinds, while the block runs; give the kubeconfig that finds them."""
    secrets = [each.secret() for each in stored]

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            pass

        def do_GET(self) -> None:
            url = urlparse(self.path)
            answer, code = _answer(url.path, parse_qs(url.query), secrets, live)
            body = json.dumps(answer).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    kubeconfig = folder / "kubeconfig"
    cluster = {"server": f"http://127.0.0.1:{server.server_address[1]}"}
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "simulated", "cluster": cluster}],
        "users": [{"name": "nobody", "user": {}}],
        "contexts": [{"name": "simulated", "context": {"cluster": "simulated", "user": "nobody"}}],
        "current-context": "simulated",
    }
    kubeconfig.write_text(json.dumps(content))
    kubeconfig.chmod(0o600)
    try:
        yield kubeconfig
    finally:
        server.shutdown()
        server.server_close()


_ACCESS = "rbac.authorization.k8s.io"
# Path -> what a server says of itself there.
_DISCOVERY: dict[str, dict[str, Any]] = {
    "/version": {"major": "1", "minor": "31", "gitVersion": "v1.31.0"},
    "/api": {"kind": "APIVersions", "versions": ["v1"]},
    "/api/v1": {
        "kind": "APIResourceList", "groupVersion": "v1",
        "resources": [
            {"name": "configmaps", "namespaced": True, "kind": "ConfigMap", "verbs": ["get"]},
            {"name": "serviceaccounts", "namespaced": True, "kind": "ServiceAccount", "verbs": ["get"]},
        ],
    },
    "/apis": {
        "kind": "APIGroupList", "apiVersion": "v1",
        "groups": [{
            "name": group, "versions": [{"groupVersion": f"{group}/v1", "version": "v1"}],
            "preferredVersion": {"groupVersion": f"{group}/v1", "version": "v1"},
        } for group in ("apps", _ACCESS)],
    },
    "/apis/apps/v1": {
        "kind": "APIResourceList", "groupVersion": "apps/v1",
        "resources": [{"name": "daemonsets", "namespaced": True, "kind": "DaemonSet", "verbs": ["get"]}],
    },
    f"/apis/{_ACCESS}/v1": {
        "kind": "APIResourceList", "groupVersion": f"{_ACCESS}/v1",
        "resources": [
            {"name": f"{kind.lower()}s", "namespaced": False, "kind": kind, "verbs": ["get"]}
            for kind in ("ClusterRole", "ClusterRoleBinding")
        ],
    },
}  # fmt: skip


def _answer(
    path: str, query: Mapping[str, list[str]], secrets: Sequence[dict[str, Any]], live: Sequence[dict[str, Any]]
) -> tuple[dict[str, Any], int]:
    if path in _DISCOVERY:
        return _DISCOVERY[path], 200
    if path == f"/api/v1/namespaces/{NAMESPACE}/secrets":
        asked = dict(part.split("=") for part in query.get("labelSelector", [""])[0].split(",") if "=" in part)
        items = [each for each in secrets if asked.items() <= each["metadata"]["labels"].items()]
        return {"apiVersion": "v1", "kind": "SecretList", "metadata": {}, "items": items}, 200
    named = [
        each for each in (*secrets, *live) if path.endswith(f"/{each['kind'].lower()}s/{each['metadata']['name']}")
    ]
    missing = {"apiVersion": "v1", "kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404}
    return (named[0], 200) if named else (missing, 404)
