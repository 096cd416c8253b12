"""The API server by kubectl's proxy on a socket: any kubeconfig will do, and no token is held here."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_LONGEST_S = 20


class ApiError(Exception):
    """Say which request the API server refused, and how; `status` is HTTP's, 0 where none came."""

    def __init__(self, message: str, status: int = 0) -> None:
        """Hold the message and the status."""
        super().__init__(message)
        self.status = status


class _Connection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=_LONGEST_S)
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(_LONGEST_S)
        self.sock.connect(str(self.path))


class Api:
    """Ask and tell the API server; every method raises ApiError."""

    def __init__(self, path: Path) -> None:
        """Hold the socket's path; nothing is connected yet."""
        self._connection = _Connection(path)

    def get(self, path: str) -> dict[str, Any]:
        """Return an object or a list."""
        return self._request("GET", path)

    def patch(self, path: str, patch: Mapping[str, Any]) -> None:
        """Merge into an object."""
        self._request("PATCH", path, patch, "application/merge-patch+json")

    def delete(self, path: str, options: Mapping[str, Any]) -> None:
        """Delete an object."""
        self._request("DELETE", path, options, "application/json")

    def _request(
        self, method: str, path: str, sends: Mapping[str, Any] | None = None, kind: str = ""
    ) -> dict[str, Any]:
        headers = {"Content-Type": kind} if kind else {}
        try:
            self._connection.request(method, path, None if sends is None else json.dumps(sends), headers)
            answer = self._connection.getresponse()
            content = answer.read()
            if answer.status >= 400:
                raise ApiError(f"{method} {path}: {answer.status} {content[:200]!r}", answer.status)
            found: dict[str, Any] = json.loads(content)
        except (OSError, http.client.HTTPException, ValueError) as error:
            # The next request connects anew.
            self._connection.close()
            raise ApiError(f"{method} {path}: {type(error).__name__}: {error}") from error
        return found
