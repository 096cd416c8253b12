"""A private key that cannot be used is told by name, on its hosts alone, at once, and without a traceback.

pyinfra itself runs; nothing listens where the hosts are said to be, and none is asked.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from gpunode.base.findings import FindingClass
from tests.support import warm
from tests.support.messages import unnamed

pytestmark = pytest.mark.pure

NOBODY: dict[str, Any] = {"ssh_hostname": "127.0.0.1", "ssh_port": 1}


def inventory(folder: Path, hosts: dict[str, dict[str, Any]]) -> Path:
    path = folder / "inventory.py"
    path.write_text(f"gpu_nodes = {[(name, {**NOBODY, **data}) for name, data in hosts.items()]!r}\n")
    return path


def run(program: str, *words: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    done = warm.run(program, *words, env={**os.environ, "NO_COLOR": "1", **environment})
    assert "Traceback" not in done.stdout + done.stderr, done.stdout + done.stderr
    return done


@pytest.mark.parametrize("processes", ["1", "2"])
def test_drift_tells_which_key_of_which_host_cannot_be_used(tmp_path: Path, processes: str) -> None:
    keys = {kind: tmp_path / f"{kind}-key" for kind in ("absent", "encrypted", "binary", "foreign")}
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "secret", "-f", keys["encrypted"]], check=True)
    keys["binary"].write_bytes(bytes(range(256)))
    keys["foreign"].write_text("no key\n")
    hosts: dict[str, dict[str, Any]] = {kind: {"ssh_key": str(path)} for kind, path in keys.items()}
    path = inventory(tmp_path, {"other": {}, **hosts})
    done = run("gpunode", "drift", "--json", "--processes", processes, path)
    assert done.returncode == 1
    said = {name: host["findings"] for name, host in json.loads(done.stdout.splitlines()[-1])["hosts"].items()}
    assert all(found[0]["class"] == FindingClass.UNREACHABLE for found in said.values())
    for kind, path in keys.items():
        assert str(path) in said[kind][0]["cause"], said[kind]
    assert "ssh_key_password" in said["encrypted"][0]["cause"]
    assert "Could not connect" in said["other"][0]["cause"]


def test_drift_goes_on_where_the_key_of_the_clusters_host_cannot_be_used(tmp_path: Path) -> None:
    absent = tmp_path / "absent"
    cluster = {"kubernetes": {"enabled": True, "run_on": "cp-1"}}
    path = inventory(tmp_path, {"gpu-1": cluster, "cp-1": {"ssh_key": str(absent)}})
    done = run("gpunode", "drift", "--json", path)
    assert done.returncode == 1 and "PyinfraError" not in done.stdout + done.stderr, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])["hosts"]
    assert set(said) == {"gpu-1", "cp-1"}
    cluster_said = json.loads(done.stdout.splitlines()[-1])["cluster"]
    assert any(str(absent) in str(each["cause"]) for each in cluster_said["findings"])


def test_pyinfras_own_run_fails_on_the_hosts_of_that_key_alone(tmp_path: Path) -> None:
    absent = tmp_path / "absent"
    path = inventory(tmp_path, {"gpu-1": {"ssh_key": str(absent)}})
    path.write_text(path.read_text() + "others = ['@local']\n")
    done = run("pyinfra", "-y", path, "exec", "--", "true")
    told = done.stdout + done.stderr
    assert str(absent) in told and "gpu-1" in told
    assert "[@local] Success" in told, told


def test_ci_waits_for_no_key_to_appear(tmp_path: Path) -> None:
    absent, junit = tmp_path / "absent", tmp_path / "ci.xml"
    # The time limit of the run is the assertion: it would wait for ten minutes.
    done = run(
        "gpunode", "ci", "--wait", "600", "--junit", junit, GPUNODE_CI_HOST="127.0.0.1", GPUNODE_CI_KEY=str(absent),
        GPUNODE_CI_HOST_KEYS="accept-new", GPUNODE_CI_KNOWN_HOSTS=str(tmp_path / "known_hosts"),
    )  # fmt: skip
    assert done.returncode == 1
    (error,) = ElementTree.parse(junit).getroot().iter("error")
    for said in (done.stderr, str(error.text)):
        assert str(absent) in said
    assert unnamed(error.text, "GPUNODE_CI_KEY") == []
