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
from gpunode.fleet.known.ssh_arguments import Ssh, read

INI = """\
lone ansible_connection=local

[gpu-nodes]
gpu[01:03].example.org ansible_user=ubuntu ansible_become=true
odd ansible_host=10.0.0.9 ansible_port=2222 ansible_ssh_private_key_file=~/.ssh/gpu ansible_ssh_host=10.0.0.10

[a100]
gpu01.example.org

[fleet:children]
gpu-nodes
a100

[fleet:vars]
ansible_ssh_common_args='-o ProxyJump=jump@bastion.example.org:2200 -o StrictHostKeyChecking=no'
ansible_become_password=hunter2
rack_unit=7
"""
YAML = """\
all:
  vars: {ansible_user: from-all}
  children:
    b_deep:
      vars: {ansible_user: from-parent, ansible_port: 22}
      children:
        a_child:
          hosts:
            gpu-1: {ansible_host: 10.0.0.1}
            gpu-2: {ansible_user: its-own, ansible_host: !unsafe 10.0.0.2}
            gpu-3:
              ansible_host: "{{ rack }}.example.org"
              ansible_ssh_private_key_file: !vault |
                $ANSIBLE_VAULT;1.1;AES256
                61393764613964
          vars: {ansible_user: from-child}
    crates:
      hosts:
        box: {ansible_connection: community.docker.docker}
"""


def listed(text: str, name: str, folder: Path, *options: str) -> Known:
    """Return what is known of a file by the real program's own list."""
    (folder / name).write_text(text)
    program = Path(sys.executable).with_name("ansible-inventory")
    done = subprocess.run(
        [program, "-i", folder / name, "--list", *options],
        capture_output=True,
        text=True,
        check=True,
        env={"HOME": str(folder), "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"},
    )
    return known(json.loads(done.stdout))


def of(found: Known, name: str) -> dict[str, Any]:
    return dict(next(host.data for host in found.hosts if host.name == name))


def told(found: Known, about: str) -> list[str]:
    return [sentence for sentence in found.told if about in sentence]


@pytest.mark.real
@pytest.mark.parametrize("options", [(), ("--export",)])
def test_an_ini_file_comes_with_ranges_groups_and_connection_data(tmp_path: Path, options: tuple[str, ...]) -> None:
    found = listed(INI, "hosts.ini", tmp_path, *options)
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
    found = listed(YAML, "hosts.yml", tmp_path, *options)
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
    ("variables", "data", "says"),
    [
        ({}, {}, None),
        ({"ansible_user": "root", "ansible_become": "yes"}, {"ssh_user": "root"}, None),
        ({"ansible_become": True}, {"_sudo": True}, None),
        ({"ansible_user": "me"}, {"ssh_user": "me", "_sudo": True}, "has no ansible_become"),
        ({"ansible_become": "maybe"}, {}, "is neither true nor false"),
        ({"ansible_become": 1, "ansible_become_method": "su"}, {"_sudo": True}, "and not by 'su'"),
        ({"ansible_become": 1, "ansible_become_user": "app"}, {"_sudo": True}, "and not as 'app'"),
        ({"ansible_port": "70000"}, {}, "ansible_port: '70000' is no port"),
        ({"ansible_port": "2222"}, {"ssh_port": 2222}, None),
        ({"ansible_host": "a b"}, {}, "'a b' is no address"),
        ({"ansible_host": "-oProxyCommand=evil"}, {}, "is no address"),
        ({"ansible_python_interpreter": "/usr/bin/python3"}, {}, "pyinfra has no need of it"),
        ({"ansible_ssh_extra_args": ["-A"]}, {}, "ansible_ssh_extra_args: is no text"),
        ({"ansible_ssh_pass": "x"}, {}, "a secret is not copied"),
        ({"ansible_user": {"__ansible_unsafe": "me"}, "ansible_become": True}, {"ssh_user": "me", "_sudo": True}, None),
    ],
)
def test_each_variable_is_carried_over_or_told(
    variables: dict[str, Any], data: dict[str, Any], says: str | None
) -> None:
    found = known({"_meta": {"hostvars": {"gpu-1": variables}}, "all": {"hosts": ["gpu-1"]}})
    assert of(found, "gpu-1") == data
    assert len(found.told) == (says is not None)
    assert says is None or says in found.told[0]


@pytest.mark.pure
@pytest.mark.parametrize(
    ("text", "jump", "data", "says"),
    [
        ("-o ProxyJump=bastion", "bastion", {}, None),
        ("-J me@bastion:22,second", "me@bastion:22,second", {}, None),
        ("-oProxyCommand='ssh -W %h:%p -q me@bastion'", "me@bastion", {}, None),
        ("-o 'ProxyCommand ssh -p 2200 -l me bastion -W [%h]:%p'", "me@bastion:2200", {}, None),
        ("-o ProxyCommand='nc -x proxy:1080 %h %p'", None, {}, "ProxyCommand names no jump"),
        ("-o ProxyCommand='ssh -W %h:%p bastion; rm -rf /'", None, {}, "ProxyCommand names no jump"),
        ("-o ProxyJump=none", None, {}, None),
        ("-J 'a b'", None, {}, "-J names no jump"),
        ("-C -o ControlMaster=auto -o ControlPersist=60s", None, {}, None),
        (
            "-o UserKnownHostsFile=/etc/keys -A",
            None,
            {"ssh_known_hosts_file": "/etc/keys", "ssh_forward_agent": True},
            None,
        ),
        ("-o UserKnownHostsFile=/dev/null", None, {}, "host keys are checked"),
        ("-o StrictHostKeyChecking=accept-new", None, {"ssh_strict_host_key_checking": "accept-new"}, None),
        ("-F ssh.cfg", None, {"ssh_config_file": "ssh.cfg"}, None),
        ("-o HostKeyAlgorithms=ssh-rsa", None, {}, "hostkeyalgorithms is not carried over"),
        ("-o 'ProxyJump", None, {}, "cannot be read as options of ssh"),
    ],
)
def test_options_of_ssh_are_carried_over_or_told(
    text: str, jump: str | None, data: dict[str, Any], says: str | None
) -> None:
    heard: list[str] = []
    found = read(text, Ssh(), heard.append)
    assert (found.jump, dict(found.data)) == (jump, data)
    assert len(heard) == (says is not None)
    assert says is None or says in heard[0]


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


@pytest.mark.pure
@pytest.mark.parametrize(
    ("document", "says"),
    [
        ([], "this is no inventory"),
        ({}, "this is no inventory"),
        ({"all": 7}, "group 'all' must be a mapping"),
        ({"g": {"hosts": "gpu-1"}}, "hosts must be a list of names"),
        ({"g": {"hosts": [1]}}, "hosts must be a list of names"),
        ({"g": {"vars": []}, "h": {"vars": [1]}}, "group 'h': vars must be a mapping"),
        ({"_meta": {"hostvars": []}, "g": {"hosts": []}}, None),
        ({"_meta": {"hostvars": ["x"]}}, "_meta.hostvars must be"),
        ({"a": {"children": ["b"]}, "b": {"children": ["a"]}}, "in a circle"),
    ],
)
def test_what_is_no_inventory_is_refused(document: Any, says: str | None) -> None:
    if says is None:
        assert known(document).hosts == ()
        return
    with pytest.raises(KnownError, match=says):
        known(document)


@pytest.mark.pure
def test_names_that_pyinfra_would_take_for_something_else_are_left_out_by_name() -> None:
    found = known({"g": {"hosts": ["@docker/x", "-oProxyCommand=x", 'a"]\nimport os', "good"]}})
    assert [host.name for host in found.hosts] == ["good"]
    assert found.groups == {"g": ("good",)}
    assert "'@docker/x'" in found.told[0] and "left out" in found.told[0]


@pytest.mark.pure
def test_a_connection_that_is_no_text_is_told_and_not_shown() -> None:
    hosts = {"gpu-1": {"__ansible_unsafe": "ssh"}, "gpu-2": {"__ansible_vault": "$ANSIBLE_VAULT;1.1;AES256\n6139"}}
    found = known({"_meta": {"hostvars": {name: {"ansible_connection": by} for name, by in hosts.items()}}})
    assert [host.name for host in found.hosts] == ["gpu-1"]
    assert found.told == ("'gpu-2': left out: its ansible_connection is encrypted, or no text",)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=12), inner, max_size=3),
    max_leaves=12,
)
VARIABLE = st.sampled_from(
    [
        "ansible_host",
        "ansible_port",
        "ansible_user",
        "ansible_become",
        "ansible_ssh_common_args",
        "ansible_connection",
        "ansible_become_method",
        "ansible_ssh_private_key_file",
        "own",
    ]
)
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
