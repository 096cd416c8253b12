"""Ansible's inventory as hosts, groups and connection data: real ansible-inventory prints it; what is left is told."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpunode.fleet.known.ansible import known
from gpunode.fleet.known.machines import Known, KnownError
from tests.support.generated import json_values

DATA = Path(__file__).parent / "data" / "ansible"


def listed(name: str, folder: Path, *options: str) -> Known:
    """Return what is known of a file by the real program's own list."""
    program = Path(sys.executable).with_name("ansible-inventory")
    environment = {"HOME": str(folder), "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}
    words = [str(program), "-i", str(DATA / name), "--list", *options]
    done = subprocess.run(words, capture_output=True, text=True, check=True, env=environment)
    return known(json.loads(done.stdout))


def of(found: Known, name: str) -> dict[str, Any]:
    return dict(next(host.data for host in found.hosts if host.name == name))


def told(found: Known, about: str) -> list[str]:
    return [sentence for sentence in found.told if about in sentence]


@pytest.mark.real
@pytest.mark.parametrize("options", [(), ("--export",)])
def test_an_ini_file_comes_with_ranges_groups_and_connection_data(tmp_path: Path, options: tuple[str, ...]) -> None:
    found = listed("hosts.ini", tmp_path, *options)
    gpus = ("gpu01.example.org", "gpu02.example.org", "gpu03.example.org")
    assert {host.name for host in found.hosts} == {"@local", *gpus, "odd"}
    assert found.groups == {"a100": gpus[:1], "fleet": (*gpus, "odd"), "gpu-nodes": (*gpus, "odd")}
    assert of(found, gpus[1]) == {"ssh_user": "ubuntu", "_sudo": True}
    # Of two names of one thing Ansible takes the later.
    assert of(found, "odd") == {"ssh_hostname": "10.0.0.10", "ssh_port": 2222, "ssh_key": "~/.ssh/gpu"}
    assert {host.jump for host in found.hosts if host.name != "@local"} == {"jump@bastion.example.org:2200"}
    assert told(found, "ansible_become_password: ") and told(found, "rack_unit: ")
    assert told(found, "StrictHostKeyChecking=no ") and told(found, "lone: ")
    assert "hunter2" not in repr(found)


@pytest.mark.real
@pytest.mark.parametrize("options", [(), ("--export",)])
def test_a_yaml_file_comes_with_variables_of_groups_the_deepest_last(tmp_path: Path, options: tuple[str, ...]) -> None:
    found = listed("hosts.yml", tmp_path, *options)
    assert of(found, "gpu-1") == {"ssh_hostname": "10.0.0.1", "ssh_port": 22, "ssh_user": "from-child", "_sudo": True}
    assert of(found, "gpu-2")["ssh_user"] == "its-own"
    assert of(found, "gpu-2")["ssh_hostname"] == "10.0.0.2"
    assert "ssh_hostname" not in of(found, "gpu-3") and "ssh_key" not in of(found, "gpu-3")
    assert told(found, "gpu-3: ansible_host: ")
    (vault,) = told(found, "gpu-3: ansible_ssh_private_key_file: ")
    (box,) = told(found, "box: left out: ")
    assert "ansible-vault" in vault and "'community.docker.docker'" in box
    assert found.groups == {"a_child": ("gpu-1", "gpu-2", "gpu-3"), "b_deep": ("gpu-1", "gpu-2", "gpu-3")}


@pytest.mark.pure
@pytest.mark.parametrize(
    "text",
    [
        "-o ProxyCommand='sshpass -p hunter2 ssh -W %h:%p me@bastion'",
        "-o ProxyCommand='ncat --proxy-auth me:hunter2 --proxy p:3128 %h %p'",
        "-J me:hunter2@bastion",
        "-o ProxyJump=me:hunter2@bastion",
        "-o SetEnv=TOKEN=hunter2",
        "-o 'hunter2: yes'",
        "-o hunter2",
        "-o StrictHostKeyChecking=hunter2",
        "hunter2",
        "-e hunter2",
        "-o 'ProxyCommand hunter2",
        ["-o", "ProxyCommand=hunter2"],
    ],
)
def test_what_is_told_of_an_option_names_it_and_never_its_value(text: Any) -> None:
    hosts = {"gpu-1": {"ansible_ssh_common_args": text}}
    found = known({"_meta": {"hostvars": hosts}, "all": {"hosts": ["gpu-1"]}})
    assert len(found.told) == 1 and "hunter2" not in repr(found)


JSON = json_values(st.text(max_size=12))
VARIABLE = st.sampled_from(["host", "port", "user", "become", "ssh_common_args", "connection", "become_method"]).map(
    "ansible_{}".format
) | st.sampled_from(["ansible_ssh_private_key_file", "own"])
GROUP = st.fixed_dictionaries(
    {},
    optional={
        "hosts": st.lists(st.text(max_size=6)),
        "children": st.lists(st.sampled_from("abc")),
        "vars": st.dictionaries(VARIABLE, JSON, max_size=3),
    },
)
DOCUMENT = st.dictionaries(st.sampled_from([*"abc", "all", "ungrouped"]), GROUP | JSON, max_size=4).flatmap(
    lambda groups: st.dictionaries(st.text(max_size=6), st.dictionaries(VARIABLE, JSON, max_size=5), max_size=3).map(
        lambda hosts: {**groups, "_meta": {"hostvars": hosts}}
    )
)


@pytest.mark.pure
@given(DOCUMENT | JSON)
def test_any_document_is_read_or_refused_and_no_host_is_lost_without_a_word(document: Any) -> None:
    try:
        found = known(document)
    except KnownError:
        return
    names = {host.name for host in found.hosts}
    assert len(names) == len(found.hosts)
    assert all(set(members) <= names for members in found.groups.values())
    words = "\n".join(found.told)
    for host in document["_meta"]["hostvars"] if isinstance(document.get("_meta"), dict) else ():
        assert host in names or host in words or repr(host) in words or ascii(host) in words
