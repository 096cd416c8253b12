"""`gpunode check`: the whole command, on inventories in files, without any connection."""

import json
import os
import runpy
import subprocess
from pathlib import Path

import pytest

from gpunode.fleet.inventory import foreign_names
from gpunode.settings import settings_from
from tests.support import warm

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.pure


def _check(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GPUNODE_")}
    return warm.run("gpunode", "check", *arguments, env={**kept, **environment}, timeout=60)


def _inventory(folder: Path, hosts: str, **group_data: str) -> str:
    (folder / "group_data").mkdir()
    for name, text in group_data.items():
        (folder / "group_data" / f"{name}.py").write_text(text)
    (folder / "site.py").write_text(hosts)
    return str(folder / "site.py")


def test_the_production_example_is_right() -> None:
    done = _check("inventories/prod.py")
    assert (done.returncode, done.stderr) == (0, "") and "2 hosts" in done.stdout


def test_the_ci_inventory_says_what_it_lacks() -> None:
    done = _check("inventories/ci.py")
    assert done.returncode == 1 and "GPUNODE_CI_HOST" in done.stderr and "Traceback" not in done.stderr
    assert _check("inventories/ci.py", GPUNODE_CI_HOST="192.0.2.1", GPUNODE_CI_KEY="/k").returncode == 0


def test_five_kinds_of_mistakes_on_three_hosts_stand_in_one_message(tmp_path: Path) -> None:
    # Addresses of a documentation network: a connection attempt would run into the timeout.
    hosts = """
site = [
    ("192.0.2.1", {"driver": {"flavour": "opne", "version": 580.95}, "x_rack": 4}),
    ("192.0.2.2", {"cuda": {"versoin": "12.9"}, "drivr": {}}),
    ("192.0.2.3", {"containerd": {"source": "present", "version": "1.7.24"}}),
]
"""
    done = _check(_inventory(tmp_path, hosts), "--json")
    assert done.returncode == 3 and "Traceback" not in done.stderr
    told = [(each["host"], each["key"], each["value"], each["code"]) for each in json.loads(done.stdout)["problems"]]
    assert told == [
        ("192.0.2.1", "driver.flavour", "'opne'", "settings.not-allowed"),
        ("192.0.2.1", "driver.version", "580.95", "settings.wrong-type"),
        ("192.0.2.2", "drivr", "{}", "settings.unknown-name"),
        ("192.0.2.2", "cuda.versoin", "'12.9'", "settings.unknown-name"),
        ("192.0.2.3", "containerd.version", "'1.7.24'", "settings.contradiction"),
    ]
    lines = done.stderr.splitlines()[1:]
    named = ["auto, open, proprietary", "a string", "'driver'", "'version'", "containerd.source 'present'"]
    assert [text for line, text in zip(lines, named, strict=True) if text not in line] == []
    assert "5 mistakes" in done.stderr


def test_group_data_counts_and_the_host_wins(tmp_path: Path) -> None:
    hosts = 'nodes = ["gpu-1", ("gpu-2", {"cuda": {"version": "12.8"}})]\n'
    inventory = _inventory(
        tmp_path, hosts, all='ssh_user = "root"\ncuda = {"version": "12.6"}\n', site='cuda = {"version": "12.9"}\n'
    )
    done = _check(inventory, "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)["hosts"]
    assert {name: row["cuda"]["version"] for name, row in found.items()} == {"gpu-1": "12.9", "gpu-2": "12.8"}


def test_a_password_in_a_proxy_is_refused_and_not_shown(tmp_path: Path) -> None:
    hosts = 'nodes = [("gpu-1", {"proxy": {"http": "http://me:hunter2@proxy:3128"}})]\n'
    done = _check(_inventory(tmp_path, hosts), "--json")
    assert done.returncode == 3
    (problem,) = json.loads(done.stdout)["problems"]
    assert problem["value"] == "'http://***@proxy:3128'"
    assert "docs/security.md" in problem["message"]
    assert "hunter2" not in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("import nowhere_at_all\n", "nowhere_at_all"),
        ("nodes = [\n", "SyntaxError"),
        ("raise SystemExit('the lab is not up')\n", "the lab is not up"),
        ("nodes = []\n", "no host"),
        ("1 / 0\n", "ZeroDivisionError"),
    ],
)
def test_an_inventory_that_cannot_be_read_is_an_error_without_traceback(tmp_path: Path, text: str, says: str) -> None:
    done = _check(_inventory(tmp_path, text))
    assert done.returncode == 1 and says in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize("group", ["all", "ci", "lab", "prod"])
def test_the_groups_of_the_repository_are_right(group: str) -> None:
    data = runpy.run_path(str(ROOT / "inventories" / "group_data" / f"{group}.py"))
    settings_from(data, foreign_names())


def test_a_missing_file_is_not_taken_for_a_host_name() -> None:
    done = _check("inventories/missing.py", "--json")
    assert (done.returncode, json.loads(done.stdout)["code"]) == (1, "inventory.unreadable")


def test_the_names_of_pyinfras_connectors_are_let_through() -> None:
    assert {"ssh_user", "ssh_key", "ssh_hostname", "ssh_known_hosts_file", "docker_platform"} <= foreign_names()


def test_what_no_node_can_become_is_refused_without_one(tmp_path: Path) -> None:
    hosts = """
site = [
    ("192.0.2.1", {"driver": {"branch": "570"}, "cuda": {"version": "13.0"}}),
    ("192.0.2.2", {"driver": {"branch": "570"}, "cuda": {"version": "13.0"}}),
    ("192.0.2.3", {"driver": {"branch": "580"}, "cuda": {"version": "13.0"}}),
]
"""
    inventory = _inventory(tmp_path, hosts)
    done = _check(inventory)
    assert done.returncode == 3
    (line,) = done.stderr.splitlines()
    assert line.startswith("refused: 192.0.2.1, 192.0.2.2: cuda: ") and "driver.branch" in line
    document = json.loads(_check(inventory, "--json").stdout)
    assert [item["hosts"] for item in document["refusals"]] == [["192.0.2.1", "192.0.2.2"]] and not document["ok"]
