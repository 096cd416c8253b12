"""The lab's cluster from its start to its end, with programs that only pretend: nothing of Kubernetes runs here."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from gpunode.cli.lab import lab as command
from gpunode.lab import processes, state
from gpunode.lab.cluster import cluster, control_plane
from gpunode.lab.cluster.programs import NAMES, programs
from gpunode.lab.errors import LabError
from gpunode.lab.state import read_json, write_json

pytestmark = [pytest.mark.simulated, pytest.mark.starts_programs]

# As the API server does when it starts first; it notes how it was called.
PROGRAM = """#!/bin/sh
printf '%s\\n' "$@" > "${0##*/}.words"
case $0 in *apiserver)
  mkdir -p certificates
  printf -- '-----BEGIN CERTIFICATE-----\\n-----END CERTIFICATE-----\\n' > certificates/apiserver.crt;;
esac
exec sleep 60
"""


@pytest.fixture
def given(tmp_path: Path) -> Path:
    """Return a folder with four programs."""
    folder = tmp_path / "programs"
    folder.mkdir()
    for name in NAMES:
        (folder / name).write_text(PROGRAM)
        (folder / name).chmod(0o755)
    return folder


@pytest.fixture
def started(tmp_path: Path, given: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Path]]:
    """Give the folders of two clusters that were started; they end afterwards."""
    monkeypatch.setattr(control_plane, "ready", lambda kubeconfig: True)
    folders = [tmp_path / "one", tmp_path / "two"]
    try:
        for folder in folders:
            control_plane.start(folder, given, folder.with_suffix(".kubeconfig"), lambda line: None)
        yield folders
    finally:
        for folder in folders:
            control_plane.stop(folder)


def test_two_clusters_have_a_port_each_and_listen_on_loopback_alone(started: list[Path]) -> None:
    servers = []
    for folder in started:
        words = (folder / "kube-apiserver.words").read_text().splitlines()
        assert "--bind-address=127.0.0.1" in words and "--insecure-port=0" in words
        kubeconfig = yaml.safe_load(folder.with_suffix(".kubeconfig").read_text())
        servers.append(kubeconfig["clusters"][0]["cluster"]["server"])
        assert f"--secure-port={servers[-1].rpartition(':')[2]}" in words
    assert len(set(servers)) == 2


def test_the_token_is_random_and_in_files_of_root_alone(started: list[Path]) -> None:
    tokens = []
    for folder in started:
        kubeconfig = folder.with_suffix(".kubeconfig")
        tokens.append(yaml.safe_load(kubeconfig.read_text())["users"][0]["user"]["token"])
        for path in (kubeconfig, folder / "tokens.csv"):
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
        # A program that has just begun has said nothing yet.
        said = [path for name in NAMES if name != "etcd" and (path := folder / f"{name}.words").exists()]
        assert said and not any(tokens[-1] in path.read_text() for path in said)
    assert tokens[0] != tokens[1] and all(len(token) >= 32 for token in tokens)


def test_a_second_start_keeps_what_runs_and_starts_what_ended(started: list[Path], given: Path) -> None:
    folder = started[0]
    kubeconfig = folder.with_suffix(".kubeconfig")
    before = {name: read_json(folder / f"{name}.json") for name in NAMES}
    token = kubeconfig.read_text()
    processes.stop(folder, "kube-scheduler")
    control_plane.start(folder, given, kubeconfig, lambda line: None)
    after = {name: read_json(folder / f"{name}.json") for name in NAMES}
    assert [name for name in NAMES if before[name] != after[name]] == ["kube-scheduler"]
    assert kubeconfig.read_text() == token


def test_at_the_end_nothing_of_it_runs(started: list[Path]) -> None:
    assert control_plane.stop(started[0]) is True
    assert not any(processes.runs(started[0], name) for name in NAMES)
    assert all(processes.runs(started[1], name) for name in NAMES)
    assert control_plane.stop(started[0]) is False


def test_a_program_that_ends_is_told_with_its_last_words(
    tmp_path: Path, given: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control_plane, "ready", lambda kubeconfig: False)
    (given / "etcd").write_text("#!/bin/sh\necho no room >&2\nexit 1\n")
    try:
        with pytest.raises(LabError, match=r"the cluster does not start: etcd said .*\nno room"):
            control_plane.start(tmp_path / "one", given, tmp_path / "kubeconfig", lambda line: None)
    finally:
        control_plane.stop(tmp_path / "one")


def test_a_folder_that_lacks_a_program_is_refused_by_its_name(given: Path) -> None:
    (given / "kube-scheduler").chmod(0o644)
    with pytest.raises(LabError, match="there is no program kube-scheduler in it"):
        programs(lambda line: None, given)


def test_a_cluster_needs_nodes_and_is_one_of_two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "CHECKOUT", tmp_path)
    with pytest.raises(LabError, match="lab a is not up: run `gpunode lab up --lab a`"):
        cluster.up("a")
    with pytest.raises(LabError, match="leave one out"):
        cluster.up("a", given_programs=tmp_path, given=tmp_path / "kubeconfig")
    cluster.down("a")


def test_another_kubeconfig_than_before_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "CHECKOUT", tmp_path)
    node = {"name": "gpu-1", "container": "c", "address": "10.0.0.2", "gpu": "h100-80gb", "gpus": 1}
    write_json(tmp_path / ".lab" / "a" / "nodes.json", {"nodes": [node]})
    write_json(tmp_path / ".lab" / "a" / "cluster.json", {"kubeconfig": "/srv/other", "given": True})
    with pytest.raises(LabError, match="lab a has a cluster by /srv/other already"):
        cluster.up("a")


@pytest.mark.parametrize("option", ["--cluster-programs", "--kubeconfig"])
def test_what_says_which_cluster_wants_a_cluster(option: str, tmp_path: Path) -> None:
    path = tmp_path if option == "--cluster-programs" else tmp_path / "kubeconfig"
    if path != tmp_path:
        path.touch()
    done = CliRunner().invoke(command, ["up", option, str(path)])
    assert done.exit_code != 0 and "give --cluster, too" in done.output
