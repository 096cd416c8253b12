"""SSH servers that send odd packets: none ends the run of other hosts, prompts a person, or takes long to parse."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from paramiko import Message, SSHException, Transport
from paramiko.auth_handler import AuthHandler

from gpunode.fleet import hooks

pytestmark = pytest.mark.pure
MANY = 0xFFFFFFFF
# Of methods that paramiko's types do not name.
CONNECTION: Any = Transport
HANDLER: Any = AuthHandler


@pytest.fixture
def hooked() -> None:
    hooks.install()


def packet(*parts: str | int) -> Message:
    message = Message()
    for part in parts:
        message.add_int(part) if isinstance(part, int) else message.add_string(part)
    message.rewind()
    return message


def transport(**more: Any) -> Any:
    made: Any = Transport.__new__(Transport)
    made.__dict__ |= {"_log": lambda *_: None, **more}
    return made


@pytest.mark.usefixtures("hooked")
def test_a_list_is_not_built_by_the_length_that_a_server_announces() -> None:
    with pytest.raises(SSHException, match=str(MANY)):
        CONNECTION._parse_ext_info(transport(), packet(MANY))
    CONNECTION._parse_ext_info(known := transport(), packet(1, "server-sig-algs", "rsa-sha2-256"))
    assert known.server_extensions == {"server-sig-algs": b"rsa-sha2-256"}
    asked: list[Any] = []
    handler: Any = AuthHandler.__new__(AuthHandler)
    handler.auth_method, handler.transport = "keyboard-interactive", transport(_send_message=lambda _: None)

    def secret(*given: Any) -> list[str]:
        asked.append(given)
        return ["secret"]

    handler.interactive_handler = secret
    with pytest.raises(SSHException, match=str(MANY)):
        HANDLER._parse_userauth_info_request(handler, packet("title", "text", "", MANY))
    prompt = packet("title", "text", "", 1, "Password: ", 0)
    HANDLER._parse_userauth_info_request(handler, prompt)
    assert asked == [("title", "text", [("Password: ", False)])]


@pytest.mark.usefixtures("hooked")
@pytest.mark.parametrize("error", [KeyError(200), UnicodeDecodeError("utf-8", b"\xff", 0, 1, "x"), TypeError("x")])
def test_an_odd_packet_is_an_error_of_ssh(error: Exception) -> None:
    connection = Transport.__new__(Transport)
    connection.lock, connection.saved_exception = threading.Lock(), error
    assert isinstance(connection.get_exception(), SSHException)
    connection.saved_exception = of_socket = ConnectionResetError()
    assert connection.get_exception() is of_socket


@pytest.mark.usefixtures("hooked")
def test_a_server_prompts_nobody() -> None:
    given: list[Any] = []
    transport(auth_interactive=lambda name, handler, kinds: given.append(handler)).auth_interactive_dumb("me")
    assert given[0]("title", "text", [("Password: ", False)]) == []


@pytest.mark.usefixtures("hooked")
def test_debug_packets_are_not_read() -> None:
    large, begun = packet("\x1b" * 1_000_000), time.perf_counter()
    for _ in range(20):
        transport()._parse_debug(large)
    assert time.perf_counter() - begun < 0.1
