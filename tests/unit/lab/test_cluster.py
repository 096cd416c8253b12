"""The lab's cluster from its start to its end, with programs that only pretend: nothing of Kubernetes runs here."""

from __future__ import annotations

import stat
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from gpunode.cli.lab import lab as command
from gpunode.lab import processes, state
from gpunode.lab.cluster import cluster, control_plane
from gpunode.lab.cluster.programs import NAMES, node_programs, programs
from gpunode.lab.errors import LabError
from gpunode.lab.state import read_json, write_json

pytestmark = [pytest.mark.simulated, pytest.mark.tier2]

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


def test_a_program_that_ends_leaves_its_words(tmp_path: Path, given: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_plane, "ready", lambda kubeconfig: False)
    (given / "etcd").write_text("#!/bin/sh\necho no room >&2\nexit 1\n")
    try:
        with pytest.raises(LabError, match=r"etcd.*\nno room"):
            control_plane.start(tmp_path / "one", given, tmp_path / "kubeconfig", lambda line: None)
    finally:
        control_plane.stop(tmp_path / "one")


def test_a_folder_that_lacks_a_program_is_refused_by_its_name(given: Path) -> None:
    (given / "kube-scheduler").chmod(0o644)
    with pytest.raises(LabError, match="kube-scheduler"):
        programs(lambda line: None, given)


def test_a_cluster_is_given_or_the_lab_s_own_of_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "CHECKOUT", tmp_path)
    kubeconfig = tmp_path / "kubeconfig"
    with pytest.raises(LabError, match="gpunode lab up"):
        cluster.up("a")
    for programs_too, real in ((tmp_path, False), (None, True)):
        with pytest.raises(LabError):
            cluster.up("a", given_programs=programs_too, given=kubeconfig, real_kubelets=real)
    cluster.down("a")
    node = {"name": "gpu-1", "container": "c", "address": "10.0.0.2", "gpu": "h100-80gb", "gpus": 1}
    write_json(tmp_path / ".lab" / "a" / "nodes.json", {"nodes": [node]})
    own = tmp_path / ".lab" / "a" / "kubeconfig"
    # Another one than before, and other kubelets than before.
    for path, given, word in (("/srv/other", True, "/srv/other"), (str(own), False, "SIMULATED")):
        write_json(tmp_path / ".lab" / "a" / "cluster.json", {"kubeconfig": path, "given": given})
        with pytest.raises(LabError, match=word):
            cluster.up("a", real_kubelets=not given)


def test_programs_without_a_kubelet_are_enough_where_kubelets_are_simulated(given: Path) -> None:
    assert programs(lambda line: None, given) == given.resolve()
    with pytest.raises(LabError, match=r"kubelet, gpunode-lab-device-plugin, cni/bridge"):
        node_programs(lambda line: None, given)


def test_nodes_die_where_kubelets_are_real(tmp_path: Path, given: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_plane, "ready", lambda kubeconfig: True)
    for name, real in (("real", True), ("simulated", False)):
        folder = tmp_path / name
        try:
            control_plane.start(folder, given, tmp_path / f"{name}.conf", lambda line: None, real_kubelets=real)
            said = folder / "kube-controller-manager.words"
            until = time.monotonic() + 10
            while not said.exists() and time.monotonic() < until:
                time.sleep(0.05)
            assert ("-nodelifecycle" in said.read_text()) is not real
        finally:
            control_plane.stop(folder)


def test_kubelets_have_a_token_of_their_own_and_a_certificate_to_know_the_api_server_by(started: list[Path]) -> None:
    (folder, _) = started
    kubeconfig = yaml.safe_load(folder.with_suffix(".kubeconfig").read_text())
    token = control_plane.kubelet_token(folder)
    assert len(token) >= 32 and token != kubeconfig["users"][0]["user"]["token"]
    certificate = folder / control_plane.CLIENT_CERTIFICATE
    assert certificate.read_text().startswith("-----BEGIN CERTIFICATE-----")
    assert stat.S_IMODE(certificate.with_suffix(".key").stat().st_mode) == 0o600
    (folder / "tokens.csv").write_text('abc,admin,admin,"system:masters"\n')
    with pytest.raises(LabError, match="of an older gpunode"):
        control_plane.kubelet_token(folder)


@pytest.mark.parametrize("option", ["--cluster-programs", "--kubeconfig", "--real-kubelets"])
def test_what_says_which_cluster_wants_a_cluster(option: str, tmp_path: Path) -> None:
    (tmp_path / "kubeconfig").touch()
    value = {"--cluster-programs": [str(tmp_path)], "--kubeconfig": [str(tmp_path / "kubeconfig")]}.get(option, [])
    done = CliRunner().invoke(command, ["up", option, *value])
    assert done.exit_code != 0 and "--cluster," in done.output
