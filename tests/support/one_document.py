"""Helpers and data for the tests of one document."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]


@pytest.fixture
def silent() -> Iterator[str]:
    """Return the data of a host that takes connections, and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f'{{"ssh_hostname": "127.0.0.1", "ssh_port": {server.getsockname()[1]}, "ssh_connect_retries": 0}}'
