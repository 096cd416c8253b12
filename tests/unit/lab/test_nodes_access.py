"""Keys, names and files of a lab; no node is started."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gpunode.lab import access, preconditions, state
from gpunode.lab.cache import cache_dir
from gpunode.lab.errors import LabError
from gpunode.lab.host_apt import HostApt
from tests.support.messages import unnamed

pytestmark = pytest.mark.pure

CHECKOUT = Path(__file__).resolve().parents[3]


def test_the_cache_is_made_where_xdg_says_and_made_again_when_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "elsewhere"))
    assert cache_dir() == tmp_path / "elsewhere" / "gpunode"
    cache_dir().rmdir()
    assert cache_dir().is_dir()
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_dir() == tmp_path / ".cache" / "gpunode"


def test_the_lab_asked_for_goes_before_the_environment_and_that_before_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUNODE_LAB", "env")
    assert state.lab_name("asked") == "asked"
    assert state.lab_name() == "env"
    monkeypatch.delenv("GPUNODE_LAB")
    assert state.lab_name() == "default"


def test_a_state_file_that_cannot_be_written_keeps_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "faults.json"
    state.write_json(path, {"hang": True})
    with pytest.raises(TypeError):
        state.write_json(path, {"hang": object()})
    assert state.read_json(path) == {"hang": True}
    assert [entry.name for entry in tmp_path.iterdir()] == ["faults.json"]


def test_host_keys_and_client_key_are_kept_and_private(tmp_path: Path) -> None:
    key = access.client_key(tmp_path)
    first = access.prepare_host(tmp_path / "gpu-1", "gpu-1", key)
    assert first.startswith("ssh-ed25519 ")
    assert len(first.split()) == 2
    assert access.prepare_host(tmp_path / "gpu-1", "gpu-1", access.client_key(tmp_path)) == first
    for private in (key, tmp_path / "gpu-1/ssh/ssh_host_ed25519_key"):
        assert stat.S_IMODE(private.stat().st_mode) == 0o600
    assert (tmp_path / "gpu-1/ssh/authorized_keys").read_text() == key.with_suffix(".pub").read_text()


def test_ssh_knows_only_the_labs_hosts_and_is_strict(tmp_path: Path) -> None:
    command = access.ssh_command(tmp_path, "192.0.2.7", "operator")
    shown = subprocess.run([*command[:-1], "-G", command[-1]], capture_output=True, text=True, check=True).stdout
    options = dict(line.split(" ", 1) for line in shown.splitlines() if " " in line)
    assert options["stricthostkeychecking"] in ("true", "yes")
    assert options["userknownhostsfile"] == str(tmp_path / "known_hosts")
    assert options["user"] == "operator"
    assert options["identitiesonly"] == "yes"


def test_every_missing_thing_is_named_with_its_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    text = "\n".join(preconditions.problems(cgroups=tmp_path, user=1000))
    assert unnamed(text, "sudo", "apt-get", "podman", "runc", "debootstrap", "mount -t cgroup") == []


def test_the_sources_cover_suite_updates_and_security() -> None:
    text = HostApt("http://m/debian", "http://m/debian-security", "", ()).sources("bookworm")
    assert "URIs: http://m/debian\nSuites: bookworm bookworm-updates\nComponents: main contrib non-free\n" in text
    assert "URIs: http://m/debian-security\nSuites: bookworm-security\n" in text


def test_the_inventory_without_a_lab_says_what_to_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUNODE_LAB", "never-up")
    pyinfra = Path(sys.executable).with_name("pyinfra")
    command = [str(pyinfra), "inventories/lab.py", "fact", "server.Hostname"]
    result = subprocess.run(command, capture_output=True, text=True, check=False, cwd=CHECKOUT)
    assert result.returncode == 1
    assert unnamed(result.stderr, "`gpunode lab up --lab never-up`") == []
    assert "Traceback" not in result.stderr


def test_the_inventory_gives_each_node_strict_ssh_and_the_labs_repositories(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GPUNODE_LAB", raising=False)
    source = CHECKOUT / "inventories/lab.py"
    (tmp_path / ".lab/default").mkdir(parents=True)
    listed = {"key_fingerprint": "A" * 40, "nodes": [{"name": "gpu-1", "address": "192.0.2.11"}]}
    (tmp_path / ".lab/default/nodes.json").write_text(json.dumps(listed))
    scope: dict[str, Any] = {"__file__": str(tmp_path / "inventories/lab.py")}
    exec(compile(source.read_text(), str(source), "exec"), scope)
    [(name, data)] = scope["nodes"]
    assert (name, data["ssh_hostname"], data["ssh_strict_host_key_checking"]) == ("gpu-1", "192.0.2.11", "yes")
    assert data["repositories"]["cuda"] == {
        "url": "http://127.0.0.1:8900/cuda/{distribution}/{architecture}",
        "key_url": "http://127.0.0.1:8900/keys/gpunode-lab.asc",
        "key_fingerprint": "A" * 40,
    }


def test_a_limit_that_the_nodes_would_reach_is_raised_and_said_and_never_lowered(tmp_path: Path) -> None:
    limit = tmp_path / "max_user_instances"
    said: list[str] = []
    limit.write_text("128\n")
    preconditions.make_room(5, said.append, limit)
    assert (limit.read_text(), said) == ("128\n", [])
    preconditions.make_room(20, said.append, limit)
    assert int(limit.read_text()) >= 20 * 8
    assert unnamed(said[0], 128) == []
    raised = limit.read_text()
    preconditions.make_room(1, said.append, limit)
    assert limit.read_text() == raised and len(said) == 1


def test_a_limit_that_cannot_be_raised_is_told_with_its_remedy(tmp_path: Path) -> None:
    limit = tmp_path / "limit"
    limit.write_text("128\n")

    class ReadOnly(type(limit)):  # type: ignore[misc]
        def write_text(self, *args: Any, **kwargs: Any) -> int:
            raise PermissionError(13, "Permission denied")

    with pytest.raises(LabError, match="Run `sysctl fs"):
        preconditions.make_room(100, print, ReadOnly(limit))


def test_who_connects_while_a_node_begins_anew_finds_known_hosts_and_keys_whole(tmp_path: Path) -> None:
    key, known = access.client_key(tmp_path), tmp_path / "known_hosts"
    hosts = [(f"10.89.0.{number}", f"ssh-ed25519 {'A' * 68}") for number in range(2, 80)]
    access.prepare_host(tmp_path / "gpu-1", "gpu-1", key)
    access.write_known_hosts(known, hosts)
    accepted = tmp_path / "gpu-1/ssh/authorized_keys"
    whole = known.read_text(), accepted.read_text()
    # Who has opened them before reads what they said, not what is being written in its place.
    with known.open() as hosts_of_before, accepted.open() as keys_of_before:
        access.write_known_hosts(known, hosts[:1])
        access.prepare_host(tmp_path / "gpu-1", "gpu-1", access.client_key(tmp_path / "other"))
        assert (hosts_of_before.read(), keys_of_before.read()) == whole
    assert (known.read_text(), accepted.read_text()) != whole
    assert not [path for path in tmp_path.rglob(".*") if path.is_file()]


@pytest.mark.parametrize(
    ("variable", "lab", "line"),
    [
        ("", "default", "gpunode lab ssh gpu-1"),
        ("", "demo", "gpunode lab ssh --lab demo gpu-1"),
        ("demo", "demo", "gpunode lab ssh --lab demo gpu-1"),
        # Without the option it would enter the other one.
        ("demo", "default", "gpunode lab ssh --lab default gpu-1"),
    ],
)
def test_a_command_that_is_suggested_can_be_pasted_whatever_the_lab_s_name(
    monkeypatch: pytest.MonkeyPatch, variable: str, lab: str, line: str
) -> None:
    monkeypatch.setenv("GPUNODE_LAB", variable)
    assert state.told_command(lab, "ssh", "gpu-1") == line


@pytest.mark.parametrize(
    ("path", "line"),
    [("demo/nodes.json", "down --lab demo`"), ("default/nodes.json", "down`"), ("a/cluster/x.json", "down --lab a`")],
)
def test_a_broken_file_of_a_lab_names_the_removal_of_that_lab(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, line: str
) -> None:
    monkeypatch.delenv("GPUNODE_LAB", raising=False)
    monkeypatch.setattr(state, "labs_folder", lambda: tmp_path)
    for text in ("{half", "[]"):
        state.write_whole(tmp_path / path, text)
        with pytest.raises(LabError, match=f"{path}.*gpunode lab {line}$"):
            state.read_json(tmp_path / path)
