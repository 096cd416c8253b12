"""A server that answers with the same bytes for ever, slowly: no single read of its client waits for long."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def dripping(certificate: Path, key: Path, first: bytes, part: bytes, address: str = "127.0.0.1") -> Iterator[int]:
    """Yield the port of an HTTPS server; `first` is sent at once, then `part` every tenth of a second."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)

    def answer(client: socket.socket) -> None:
        with suppress(OSError), context.wrap_socket(client, server_side=True) as connection:
            connection.recv(1 << 16)
            connection.sendall(first)
            while True:
                connection.sendall(part)
                time.sleep(0.1)

    def serve() -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=answer, args=(server.accept()[0],), daemon=True).start()

    with socket.create_server((address, 0)) as server:
        threading.Thread(target=serve, daemon=True).start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
