"""The containers' logs, served over HTTPS where the API server looks for a kubelet. SIMULATED: nothing wrote them."""

from __future__ import annotations

import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

from gpunode.lab.cluster.ports import ADDRESS


class Logs:
    """Keep what pods would have said, in a folder: they outlive the stand-in."""

    def __init__(self, folder: Path) -> None:
        """Make the folder."""
        self._folder = folder
        folder.mkdir(exist_ok=True)

    def set(self, namespace: str, pod: str, text: str) -> None:
        """Note what a pod's containers said."""
        self._path(namespace, pod).write_text(text, encoding="utf-8")

    def get(self, namespace: str, pod: str) -> str | None:
        """Return what a pod's containers said; None where there is no such pod."""
        path = self._path(namespace, pod)
        return path.read_text(encoding="utf-8") if path.exists() else None

    def remove(self, namespace: str, pod: str) -> None:
        """Forget a pod."""
        self._path(namespace, pod).unlink(missing_ok=True)

    def _path(self, namespace: str, pod: str) -> Path:
        # Kubernetes' names hold neither a slash nor an underscore; a request's path may.
        return self._folder / f"{namespace}_{pod}".replace("/", "_")


def serve(logs: Logs, port: int, certificate: Path, key: Path) -> None:
    """Serve the logs on loopback, from a thread of their own."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            address = urlsplit(self.path)
            words = [unquote(word) for word in address.path.strip("/").split("/")]
            text = logs.get(words[1], words[2]) if len(words) == 4 and words[0] == "containerLogs" else None
            last = parse_qs(address.query).get("tailLines", [""])[0]
            if text is not None and last.isdigit():
                text = "".join(text.splitlines(keepends=True)[-int(last) :] if int(last) else [])
            body = (text or "").encode() if text is not None else b"SIMULATED: there is no such container\n"
            self.send_response(404 if text is None else 200)
            self.send_header("Content-Type", "text/plain")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            print(f"SIMULATED kubelet: {format % args}", flush=True)

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server = ThreadingHTTPServer((ADDRESS, port), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
