"""Commands by a real Dask scheduler and its workers, processes of this machine: what is found, and who may die."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpunode.base.findings import ExitCode
from gpunode.fleet.engine import work
from tests.support import dask_cluster, warm
from tests.support.dask_cluster import BINARIES, SECONDS, Cluster, is_there, until

pytest.importorskip("distributed", reason="needs gpunode[dask]")
from tests.support.messages import unnamed

pytestmark = [pytest.mark.tier2, pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")]

ROOT = Path(__file__).parent.parent.parent
# Nothing listens on port 1 of this machine: every connection is refused at once.
INVENTORY = """
import os, signal, time
from pathlib import Path
_here = Path(__file__).parent
gpu_nodes = [(f"gpu-{number}", {"ssh_hostname": "127.0.0.1", "ssh_port": 1, "ssh_connect_retries": 0})
             for number in range(40)]
gpu_nodes += [("gpu-east", {**gpu_nodes[0][1], "engine": {"site": "east"}})]
if os.environ.get("GPUNODE_PART"):
    MORE
"""
# Once, in the child of a worker: the worker is killed.
KILL_ONCE = """try:
        os.mkdir(_here / "killed")
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(60)
    except FileExistsError:
        pass"""
HANG = """(_here / f"child {os.getpid()}").touch()
    time.sleep(60)"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Return a cluster with two workers that take hosts of no site, and one of site east."""
    with dask_cluster.cluster(tmp_path_factory.mktemp("cluster"), None, None, "east") as found:
        yield found


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Cluster]:
    """Return a cluster with one worker, to be broken."""
    with dask_cluster.cluster(tmp_path, None) as found:
        yield found


def inventory(folder: Path, more: str = "pass") -> Path:
    path = folder / "fleet.py"
    path.write_text(INVENTORY.replace("MORE", more))
    return path


def gpunode(*words: object, **environment: str) -> subprocess.CompletedProcess[str]:
    return warm.run("gpunode", *words, env={**os.environ, **environment}, timeout=SECONDS * 2)


def hosts(done: subprocess.CompletedProcess[str]) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, Any] = json.loads(done.stdout)["hosts"]
    return {name: host["findings"] for name, host in found.items()}


def told(done: subprocess.CompletedProcess[str]) -> set[tuple[str, str]]:
    """Return the codes and causes alone, so that a part that got lost says why."""
    return {(finding["code"], finding["cause"]) for found in hosts(done).values() for finding in found}


def test_workers_find_what_this_machine_finds_and_each_site_is_asked_by_its_own(
    cluster: Cluster, tmp_path: Path
) -> None:
    path = inventory(tmp_path, '(_here / f"{os.getppid()}").touch()')
    here = gpunode("drift", "--json", path)
    there = gpunode("drift", "--json", "--engine", cluster.engine, path)
    # 40 hosts are two parts, and the one of site east is another one.
    assert {int(each.name) for each in tmp_path.glob("[0-9]*")} == {each.pid for each in cluster.workers}
    assert told(there) == told(here), there.stderr
    assert hosts(there) == hosts(here)
    assert list(hosts(there)) == list(hosts(here))
    assert here.returncode == there.returncode == ExitCode.ERROR
    of_two = ("plan", "--json", "--limit", "gpu-1", "--limit", "gpu-east")
    plans = [gpunode(*of_two, *engine, path) for engine in ((), ("--engine", cluster.engine))]
    here, there = (json.loads(each.stdout)["hosts"] for each in plans)
    assert list(there) == ["gpu-1", "gpu-east"] and here == there


# What Dask's client does to itself every two seconds; here it comes at each moment.
FORGETTING = """
import sys
from distributed import Client
from gpunode.fleet.engine.parts import engine_of
from gpunode.fleet.engine.dask_client import DaskCrew, connected
of_dask = Client._update_scheduler_info
Client._update_scheduler_info = lambda client, n_workers=0: of_dask(client)
with connected(engine_of(sys.argv[1])) as client:
    print(len(client.scheduler_info()["workers"]), len(DaskCrew(client).workers()))
"""


def test_workers_are_there_though_the_client_s_own_clock_forgets_them(cluster: Cluster) -> None:
    # In a process of its own: pyinfra has patched this one's sockets.
    words = [sys.executable, "-c", FORGETTING, cluster.engine]
    found = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS, check=True)
    assert found.stdout.split() == ["0", "3"]


def test_a_worker_whose_checkout_is_behind_judges_nothing(cluster: Cluster, tmp_path: Path) -> None:
    path = inventory(tmp_path, 'gpu_nodes[1][1]["driver"] = {"branch": "570"}')
    done = gpunode("drift", "--json", "--engine", cluster.engine, "--limit", "gpu-1", path)
    (finding,) = hosts(done)["gpu-1"]
    assert finding["cause"].endswith("[engine.other-settings]")


def test_a_secret_behind_set_does_not_go_through_the_scheduler(cluster: Cluster, tmp_path: Path) -> None:
    secret = "gpu_operator.values.proxy.password=s3cret"
    done = gpunode("drift", "--engine", cluster.engine, "--set", secret, inventory(tmp_path))
    assert done.returncode == ExitCode.ERROR
    assert unnamed(done.stderr, "secret", "--set") == [] and "s3cret" not in done.stdout + done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_controller_that_ends_takes_its_workers_commands_along(
    cluster: Cluster, tmp_path: Path, number: signal.Signals
) -> None:
    asking, child = hanging(cluster, tmp_path)
    asking.send_signal(number)
    _, said = asking.communicate(timeout=SECONDS)
    if number == signal.SIGINT:
        assert asking.returncode == ExitCode.ERROR and b"Traceback" not in said, said
    until(lambda: not is_there(child), cluster)
    assert [each.poll() for each in cluster.workers] == [None] * 3


def test_a_worker_does_its_part_itself_whatever_engine_its_user_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUNODE_ENGINE", "dask://127.0.0.1:1")
    words = ["drift", "--json", "--limit", "gpu-1", str(inventory(tmp_path))]
    found = work.done({"name": "a part", "words": words, "environment": {}, "only_by": None}, "folder")
    assert [each["code"] for each in found["document"]["hosts"]["gpu-1"]["findings"]] == ["node.connection"], found


def test_a_worker_that_is_killed_while_it_reads_loses_nothing(cluster: Cluster, tmp_path: Path) -> None:
    path = inventory(tmp_path, KILL_ONCE)
    done = gpunode("drift", "--json", "--engine", cluster.engine, "--limit", "gpu-?", path)
    cluster.until_killed(1)
    assert {finding["code"] for found in hosts(done).values() for finding in found} == {"node.connection"}
    assert len(hosts(done)) == 10


def test_where_the_scheduler_is_killed_each_part_says_so_and_its_commands_end(small: Cluster, tmp_path: Path) -> None:
    asking, child = hanging(small, tmp_path)
    small.scheduler.kill()
    printed, said = asking.communicate(timeout=SECONDS * 2)
    assert asking.returncode == ExitCode.ERROR, said
    (finding,) = json.loads(printed)["hosts"]["gpu-1"]["findings"]
    assert finding["code"] == "engine.part-lost" and "scheduler" in finding["cause"]
    until(lambda: not is_there(child), small)


def hanging(cluster: Cluster, folder: Path) -> tuple[subprocess.Popen[bytes], int]:
    """Return a command whose worker's child reads for ever, once it does, and that child."""
    path = inventory(folder, HANG)
    asking = subprocess.Popen(
        [BINARIES / "gpunode", "drift", "--json", "--engine", cluster.engine, "--limit", "gpu-1", path],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=cluster.environment,
    )  # fmt: skip
    until(lambda: any(folder.glob("child *")), cluster)
    (child,) = (int(each.name.split()[1]) for each in folder.glob("child *"))
    return asking, child


# A worker's own program: it draws a line as gpunode's client does, and answers with an object that runs code.
HOSTILE = """
import json, time
from distributed import get_worker
from gpunode.fleet.engine import work
class Answer(str):
    def __reduce__(self):
        return exec, (f"import os; open('{FOLDER}/code ran in ' + str(os.getpid()), 'w')",)
def carry_out(task):
    good = {"gpu-1": {"summary": None, "findings": []}}
    get_worker().log_event("print", {"args": (json.dumps({"names": ["gpu-1"], "document": {"hosts": good}}),)})
    get_worker().log_event("warn", {"message": __import__("pickle").dumps(Answer())})
    time.sleep(0.5)
    return Answer()
carry_out.__module__ = work.__name__
work.carry_out = carry_out
"""


def test_a_hostile_worker_runs_nothing_on_the_controller_and_loses_its_own_hosts_alone(
    cluster: Cluster, tmp_path: Path
) -> None:
    path = inventory(tmp_path)
    path.write_text(path.read_text() + 'gpu_nodes += [("gpu-evil", {**gpu_nodes[0][1], "engine": {"site": "evil"}})]')
    (tmp_path / "hostile.py").write_text(HOSTILE.replace("{FOLDER}", str(tmp_path)))
    preload = json.dumps([str(tmp_path / "hostile.py")])
    replace(cluster, environment={**cluster.environment, "DASK_DISTRIBUTED__WORKER__PRELOAD": preload}).work("evil")
    words = ("--engine", cluster.engine, "--limit", "gpu-1", "--limit", "gpu-evil")
    found = hosts(gpunode("drift", "--json", *words, path))
    assert [path.name for path in tmp_path.glob("code ran*")] == []
    codes = {name: [finding["code"] for finding in findings] for name, findings in found.items()}
    assert codes == {"gpu-1": ["node.connection"], "gpu-evil": ["engine.part-lost"]}


def test_without_certificates_nothing_is_connected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DASK_DISTRIBUTED__COMM__TLS__CA_FILE", raising=False)
    assert "engine.refused" in gpunode("drift", "--engine", "dask://127.0.0.1:1", inventory(tmp_path)).stderr
