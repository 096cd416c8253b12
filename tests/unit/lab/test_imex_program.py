"""The SIMULATED nvidia-imex: two daemons on loopback addresses find each other, and tell of it as the real one does."""

from __future__ import annotations

import base64
import json
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gpunode.components.imex.state import parse_imex
from gpunode.lab.packages import nvidia_imex
from gpunode.lab.packages.imex import CONFIG, imex_files
from gpunode.lab.packages.nvidia_imex import Daemon

pytestmark = [pytest.mark.simulated, pytest.mark.tier2]
FIRST, SECOND = "127.0.0.2", "127.0.0.3"
# Of those that documents are written with: nobody answers there.
NOBODY = "192.0.2.1"


def _port() -> int:
    with socket.create_server(("", 0)) as free:
        return int(free.getsockname()[1])


class Domain:
    """Hold the files of a domain below a folder, and start its daemons; the list of each is its own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, _port()

    def config(self, name: str, nodes: str) -> dict[str, str]:
        """Write what a daemon reads; each has a command port of its own, as both are on one machine."""
        (self.folder / f"{name}.nodes").write_text(nodes)
        values = {
            "SERVER_PORT": str(self.port), "IMEX_CMD_PORT": str(_port()), "IMEX_CMD_ENABLED": "1",
            "IMEX_NODE_CONFIG_FILE": str(self.folder / f"{name}.nodes"),
        }  # fmt: skip
        (self.folder / f"{name}.cfg").write_text("".join(f"{key}={value}\n" for key, value in values.items()))
        return nvidia_imex.config(str(self.folder / f"{name}.cfg"))

    def start(self, name: str, nodes: str) -> Daemon:
        daemon = Daemon(self.config(name, nodes))
        for listening in daemon.bind():
            threading.Thread(target=daemon.serve, args=(listening,), daemon=True).start()
        threading.Thread(target=daemon.watch, daemon=True).start()
        return daemon


def _until(good: Callable[[], bool]) -> None:
    for _ in range(100):
        if good():
            return
        time.sleep(0.1)
    raise AssertionError("it did not come to that within ten seconds")


def test_daemons_of_one_list_connect_and_one_of_another_list_stays_blocked(tmp_path: Path) -> None:
    domain, both = Domain(tmp_path), f"{FIRST}\n{SECOND}\n"
    first = domain.start("first", both)
    assert first.status[SECOND] == "NEVER_CONNECTED"
    second = domain.start("second", both)
    _until(lambda: {*first.status.values(), *second.status.values()} == {"CONNECTED"})
    other = Domain(tmp_path)
    third, fourth = other.start("third", both), other.start("fourth", f"{SECOND}\n{FIRST}\n")
    _until(lambda: third.own != fourth.own and "NODE_MAP_MISMATCH" in third.status.values())
    # Blocked for good, whatever the other says now.
    fourth.map = third.map
    time.sleep(2.5)
    assert "NODE_MAP_MISMATCH" in third.status.values()


def test_the_control_program_prints_what_the_probe_reads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    domain = Domain(tmp_path)
    config = str(tmp_path / "first.cfg")
    domain.config("first", f"{FIRST}\n{NOBODY}\n")
    assert nvidia_imex.control(["-c", config, "-q"]) == 0 and capsys.readouterr().out == "UNAVAILABLE\n"
    domain.start("first", f"{FIRST}\n{NOBODY}\n")
    nvidia_imex.control(["-c", config, "-q"])
    assert capsys.readouterr().out == "READY\n"
    nvidia_imex.control(["-c", config, "-N", "-j"])
    printed = capsys.readouterr().out
    found = parse_imex([f"answer={base64.b64encode(printed.encode()).decode()}"]).domain
    assert found is not None and [node.address for node in found.nodes] == [FIRST, NOBODY]
    assert [node.status for node in found.nodes] == ["READY", "UNAVAILABLE"] and found.status == "DEGRADED"
    assert set(json.loads(printed)) == {"nodes", "timestamp", "status"}


def test_without_its_list_it_says_so_and_none_of_its_addresses_ends_it(tmp_path: Path) -> None:
    settings = Domain(tmp_path).config("first", "192.0.2.1\n")
    with pytest.raises(SystemExit, match=r"none of \['192.0.2.1'\] is an address of this node"):
        Daemon(settings).bind()
    (tmp_path / "first.nodes").unlink()
    with pytest.raises(SystemExit, match="Failed to read node configuration file"):
        Daemon(settings)


def test_the_package_has_the_real_one_s_files_and_says_simulated() -> None:
    files = {each.path: each.content.decode() for each in imex_files("580.95.05")}
    assert set(files) == {
        "usr/bin/nvidia-imex", "usr/bin/nvidia-imex-ctl", CONFIG, "lib/systemd/system/nvidia-imex.service",
    }  # fmt: skip
    assert all("SIMULATED" in text for text in files.values())
    assert 'VERSION = "580.95.05"' in files["usr/bin/nvidia-imex"] and "@VERSION@" not in files["usr/bin/nvidia-imex"]
