"""`gpunode runtime render`, as a person calls it."""

from __future__ import annotations

import json
import subprocess
import tomllib
from pathlib import Path

import pytest

from tests.support import warm

pytestmark = pytest.mark.pure
DATA = Path(__file__).parent / "data"


def command(*arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return warm.run_bytes("gpunode", "runtime", "render", *arguments, stdin=stdin, timeout=60)


def test_the_root_file_is_printed_and_nothing_is_written(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_bytes((DATA / "in-containerd16-kubeadm.toml").read_bytes())
    done = command("--for", "containerd", "--version", "1.7.24", str(file))
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"# inline comment" in done.stdout and tomllib.loads(done.stdout.decode())["version"] == 2
    assert file.read_bytes() == (DATA / "in-containerd16-kubeadm.toml").read_bytes()


def test_without_a_file_it_begins_from_nothing_and_a_dash_is_standard_input() -> None:
    assert tomllib.loads(command("--for", "containerd", "--version", "2.1.9").stdout.decode())["version"] == 3
    newer = command("--for", "containerd", "--version", "9.9.0")
    assert b"preflight.newer-than-known" in newer.stderr and tomllib.loads(newer.stdout.decode())["version"] == 4
    done = command("--for", "docker", "--version", "26.1.5", "-", stdin=b'{"debug": true}')
    assert json.loads(done.stdout)["debug"] is True


def test_the_difference_alone_is_printed_where_it_is_asked_for() -> None:
    file = str(DATA / "in-containerd16-kubeadm.toml")
    done = command("--for", "containerd", "--version", "1.7.24", "--diff", file)
    lines = done.stdout.decode().splitlines()
    assert '-  default_runtime_name = "runc"' in lines and '+  default_runtime_name = "nvidia"' in lines
    right = command("--for", "containerd", "--version", "1.7.24", file).stdout
    assert command("--for", "containerd", "--version", "1.7.24", "--diff", "-", stdin=right).stdout == b""


def test_a_drop_in_comes_with_a_note_where_the_root_file_does_not_import_it() -> None:
    done = command("--for", "containerd", "--version", "2.1.9", "--drop-in")
    assert b"imports = " in done.stderr
    assert tomllib.loads(done.stdout.decode())["version"] == 3


def test_crio_s_drop_in_takes_over_the_options_of_the_default_runtime_in_another_file(tmp_path: Path) -> None:
    (tmp_path / "crio.conf").write_text('[crio.runtime]\ndefault_runtime = "a"\n[crio.runtime.runtimes.a]\nx = 1\n')
    done = command("--for", "crio", "--version", "1.31.2", "--with", str(tmp_path / "crio.conf"))
    assert tomllib.loads(done.stdout.decode())["crio"]["runtime"]["runtimes"]["nvidia"]["x"] == 1


@pytest.mark.parametrize(
    ("arguments", "stdin", "says"),
    [
        (("--for", "containerd", "--version", "1.6.20"), b"version = = 2", b"not TOML"),
        (("--for", "containerd", "--version", "1.6.20"), b"\xff\xfe", b"utf-8"),
        (("--for", "crio", "--version", "1.20.0"), b"", b"CDI"),
    ],
)
def test_what_it_must_refuse_is_refused_with_3_and_the_reason(
    arguments: tuple[str, ...], stdin: bytes, says: bytes
) -> None:
    done = command(*arguments, "-", stdin=stdin)
    assert (done.returncode, done.stdout) == (3, b"")
    assert says in done.stderr and b"Traceback" not in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("--for", "docker", "--version", "26.1.5", "--drop-in"),
        ("--for", "podman", "--version", "5"),
        ("--for", "containerd"),
        ("--for", "containerd", "--version", "1.7.24", "--no-nvidia"),
        ("--for", "containerd", "--version", "1.7.24", "/nonexistent"),
        ("--for", "crio", "--version", "1.31.2", "--cdi"),
        ("--for", "docker", "--version", "26.1.5", "--with", "/dev/null"),
    ],
)
def test_wrong_usage_is_64(arguments: tuple[str, ...]) -> None:
    assert command(*arguments).returncode == 64
