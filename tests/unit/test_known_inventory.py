"""`gpunode init --from-…`: pyinfra reads what was written, whatever the names; other programs' files are recognised."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyinfra.connectors.sshuserclient.client import get_ssh_config

from gpunode.fleet.inventory import load_inventory
from gpunode.fleet.inventory_files import InventoryError, recognised
from gpunode.fleet.known.machines import Known, KnownHost
from gpunode.fleet.known.written import files
from tests.support import warm
from tests.support.messages import unnamed

pytestmark = pytest.mark.pure
TEMPLATE = (warm.CHECKOUT / "inventories" / "group_data" / "prod.py").read_text()
OF_ALL = {"ansible_user": "ubuntu", "ansible_become": True}
BEHIND = {"ansible_port": 2222, "ansible_ssh_common_args": "-J bastion", "ansible_password": "hunter2"}
ANSIBLE = {
    "_meta": {"hostvars": {"gpu-1": {"ansible_host": "10.0.0.1", **OF_ALL},
                           "gpu-2": {"ansible_host": "10.0.0.2", **OF_ALL, **BEHIND}}},
    "all": {"children": ["ungrouped", "gpu-nodes", "lab"]},
    "gpu-nodes": {"hosts": ["gpu-1", "gpu-2"]},
    "lab": {"hosts": ["gpu-2"]},
}  # fmt: skip


def init(folder: Path, *words: str, stdin: str = "") -> Any:
    done = warm.run_bytes("gpunode", "init", *words, cwd=folder, stdin=stdin.encode())
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def test_pyinfra_reads_the_hosts_groups_and_data_that_were_known(tmp_path: Path) -> None:
    code, said, wrong = init(tmp_path, "mine", "--from-ansible", "-", stdin=json.dumps(ANSIBLE))
    assert (code, wrong) == (0, "")
    inventory = load_inventory(tmp_path / "mine" / "inventories" / "prod.py")
    assert sorted(host.name for host in inventory) == ["gpu-1", "gpu-2"]
    groups = {name: sorted(host.name for host in inventory.groups[name]) for name in ("gpu_nodes", "lab_hosts", "prod")}
    assert groups == {"gpu_nodes": ["gpu-1", "gpu-2"], "lab_hosts": ["gpu-2"], "prod": ["gpu-1", "gpu-2"]}
    first, second = (inventory.get_host(name).data for name in ("gpu-1", "gpu-2"))
    assert (first.ssh_hostname, first.ssh_user, first._sudo) == ("10.0.0.1", "ubuntu", True)
    assert first.get("ssh_port") is None
    assert (second.ssh_hostname, second.ssh_port, second.ssh_strict_host_key_checking) == ("10.0.0.2", 2222, "yes")
    assert second.driver["branch"] == "580"
    # Absolute, wherever the command runs.
    assert second.ssh_config_file == str(tmp_path / "mine" / "inventories" / "prod.ssh_config")
    assert "Host 10.0.0.2\n  ProxyJump bastion\n" in Path(second.ssh_config_file).read_text()
    assert unnamed(said, "'gpu-nodes'", "gpu_nodes", "'lab'", "lab_hosts", "ansible_password") == []
    written = [path.read_text() for path in (tmp_path / "mine").rglob("*.*") if path.is_file()]
    assert "hunter2" not in said + "".join(written)
    checked = warm.run("gpunode", "check", "inventories/prod.py", cwd=tmp_path / "mine")
    assert checked.returncode == 0, checked.stderr


def test_a_repository_that_is_there_gets_an_inventory_more_and_keeps_its_files(tmp_path: Path) -> None:
    assert init(tmp_path, ".")[0] == 0
    before = {path: path.read_text() for path in tmp_path.rglob("*.py")}
    (tmp_path / "ansible.json").write_text(json.dumps(ANSIBLE))
    code, said, _ = init(tmp_path, "--from-ansible", "ansible.json", "--inventory", "site", "--limit", "lab")
    assert code == 0
    assert {path: path.read_text() for path in before} == before
    new = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.*") if path not in before and path.is_file()}
    assert new - {".gitignore", "ansible.json"} == {
        f"inventories/{name}" for name in ("site.py", "group_data/site.py", "site.ssh_config")
    }
    assert [host.name for host in load_inventory(tmp_path / "inventories" / "site.py")] == ["gpu-2"]
    assert "gpunode check inventories/site.py" in said
    # A second time nothing is overwritten.
    code, said, wrong = init(tmp_path, "--from-ansible", "ansible.json", "--inventory", "site")
    assert (code, said) == (3, "")
    assert unnamed(wrong, "inventories/site.py", "inventories/site.ssh_config", "--inventory") == []


def behind(*configs: str | None, jump: str | None = "bastion") -> tuple[str, list[str]]:
    """Return ssh's file for hosts behind another one, each with this file of its own, and what is told."""
    data = [{} if config is None else {"ssh_config_file": config} for config in configs]
    hosts = tuple(KnownHost(f"gpu-{at}", each, jump) for at, each in enumerate(data))
    written, told = files(Known("x", hosts, {}), "site", TEMPLATE)
    return written.get("site.ssh_config", ""), told


@pytest.mark.parametrize("config", ["/etc/gpu/ssh.cfg", "~/gpu/ssh.cfg"])
def test_the_file_that_ssh_was_told_to_read_is_included_for_hosts_behind_another(config: str) -> None:
    text, told = behind(config, config)
    assert text.endswith(f"\nInclude {config}\n") and "~/.ssh/config" not in text and told == []
    text, told = behind(None)
    assert text.endswith("\nInclude ~/.ssh/config\n") and told == []


@pytest.mark.parametrize(
    "configs", [("ssh.cfg",), ("/a", None), (None, "/b"), ("/a", "/b"), ("/a b",), ("/a\nHost *",)]
)
def test_a_file_that_one_include_cannot_stand_for_is_told_by_host_and_name(configs: tuple[str | None, ...]) -> None:
    text, told = behind(*configs)
    assert text.endswith("\nInclude ~/.ssh/config\n")
    named = [(at, config) for at, config in enumerate(configs) if config is not None]
    assert len(told) == len(named)
    for (at, config), said in zip(named, told, strict=True):
        assert said.startswith(f"gpu-{at}: ssh's -F {config!r} ") and "site.ssh_config" in said
    assert behind(*configs, jump=None) == ("", [])


def test_pyinfra_reads_the_file_that_is_included(tmp_path: Path) -> None:
    (tmp_path / "own.cfg").write_text("Host gpu-1\n  Port 2222\n")
    host = {"ansible_ssh_common_args": f"-F {tmp_path}/own.cfg -J bastion"}
    document = {"_meta": {"hostvars": {"gpu-1": host}}, "all": {"hosts": ["gpu-1"]}}
    assert init(tmp_path, "mine", "--from-ansible", "-", stdin=json.dumps(document))[0] == 0
    found = load_inventory(tmp_path / "mine" / "inventories" / "prod.py").get_host("gpu-1").data
    config = get_ssh_config(found.ssh_config_file).lookup("gpu-1")
    assert (config["proxyjump"], config["port"], config["stricthostkeychecking"]) == ("bastion", "2222", "yes")


ANSIBLE_INPUT, SOURCE = ["--from-ansible", "-"], "init.source-refused"


@pytest.mark.parametrize(
    ("words", "stdin", "code", "names"),
    [
        (ANSIBLE_INPUT, "", 3, [SOURCE]),
        (ANSIBLE_INPUT, "[gpu]\nx\n", 3, [SOURCE, "JSON", "`gpunode init --help"]),
        (ANSIBLE_INPUT, "[]", 3, [SOURCE, "`ansible-inventory"]),
        (ANSIBLE_INPUT, '{"g": {"hosts": ["@x"]}}', 3, [SOURCE, "'@x'"]),
        (["--from-ansible", "none.json"], "", 1, ["none.json"]),
        ([*ANSIBLE_INPUT, "--limit", "cpu"], '{"g": {"hosts": ["x"]}}', 64, ["limit.no-host", "--limit", "cpu", "g"]),
        (["--from-kubernetes", "-"], "{}", 3, [SOURCE, "NodeList"]),
        (["--from-terraform", "-"], "{}", 3, [SOURCE, "`terraform"]),
        ([*ANSIBLE_INPUT, "--from-terraform", "-"], "", 64, ["--from-ansible", "--from-terraform"]),
        ([*ANSIBLE_INPUT, "--inventory", "lab"], "", 64, ["lab"]),
        ([*ANSIBLE_INPUT, "--inventory", "../x"], "", 64, ["../x"]),
        ([*ANSIBLE_INPUT, "--address", "internal"], "", 64, ["--address"]),
        (["mine", "--inventory", "site"], "", 64, ["--from-ansible"]),
        ([], "", 64, ["DIRECTORY"]),
    ],
)
def test_what_cannot_be_taken_is_refused_with_the_way_out_and_nothing_is_written(
    words: list[str], stdin: str, code: int, names: list[str], tmp_path: Path
) -> None:
    found, said, wrong = init(tmp_path, *words, stdin=stdin)
    assert (found, said, unnamed(wrong, *names)) == (code, "", [])
    assert "Traceback" not in wrong and not list(tmp_path.iterdir())


# What ends a string of Python's, or goes on in it.
HOSTILE = st.text(max_size=20) | st.sampled_from(
    ['"', "'", '"""', "\\", '\\"', "\n", '"]\nimport os\n', "{x}", "\u2028", "#"]
)
DATA = st.fixed_dictionaries(
    {}, optional={"ssh_user": HOSTILE, "ssh_key": HOSTILE, "ssh_port": st.integers(1, 65535), "_sudo": st.booleans()}
)
NAME = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.:%-]{0,8}", fullmatch=True)


@given(st.dictionaries(NAME, DATA, min_size=1, max_size=4), st.dictionaries(HOSTILE, st.just(None), max_size=3))
def test_no_value_becomes_a_program_and_each_comes_back_as_it_was(
    hosts: dict[str, Any], groups: dict[str, None]
) -> None:
    all_hosts = tuple(KnownHost(name, data) for name, data in hosts.items())
    written, _ = files(Known("a test", all_hosts, {name: tuple(hosts) for name in groups}), "prod", TEMPLATE)
    inventory: dict[str, Any] = {"__file__": "/x/inventories/prod.py"}
    settings: dict[str, Any] = {}
    exec(compile(written["prod.py"], "prod.py", "exec"), inventory)
    exec(compile(written["group_data/prod.py"], "prod.py", "exec"), settings)
    items = (item if isinstance(item, tuple) else (item, {}) for item in inventory["nodes"])
    found: dict[str, Any] = dict(items)
    common = {key: value for key, value in settings.items() if key in ("ssh_user", "ssh_key", "ssh_port", "_sudo")}
    assert {name: {**common, **data} for name, data in found.items()} == hosts
    names = {name for name in inventory if not name.startswith("__")} - {"nodes"}
    assert len(names) == len(groups) and all(inventory[name] == list(hosts) for name in names)


LIST = "ansible-inventory -i {} --list"


@pytest.mark.parametrize(
    ("name", "text", "command"),
    [
        ("hosts.ini", "# ours\n[gpu]\ngpu-[1:4]\n", f"{LIST} | gpunode init . --from-ansible - --inventory hosts"),
        ("hosts", "gpu-1 ansible_host=10.0.0.1\n", f"{LIST} | gpunode init . --from-ansible -"),
        ("prod.yml", "all:\n  hosts:\n    gpu-1: {x: !vault y}\n", "--from-ansible - --inventory prod-machines"),
        ("aws.yaml", "plugin: amazon.aws.aws_ec2\n", LIST),
        ("list.json", '{"_meta": {"hostvars": {}}, "all": {}}', "gpunode init . --from-ansible {} --inventory list"),
        ("nodes.json", '{"kind": "List", "items": []}', "gpunode init . --from-kubernetes {} --inventory nodes"),
        ("terraform.tfstate", '{"version": 4, "terraform_version": "1.9.5"}', "gpunode init . --from-terraform {}"),
    ],
)
def test_a_file_of_another_program_is_told_with_the_command_to_paste(
    name: str, text: str, command: str, tmp_path: Path
) -> None:
    path = tmp_path / "my files" / name
    path.parent.mkdir()
    path.write_text(text)
    with pytest.raises(InventoryError) as refused:
        load_inventory(path)
    assert command.format(f"'{path}'") in str(refused.value)


@pytest.mark.parametrize("command", ["check", "plan", "drift", "facts", "cluster"])
def test_every_command_says_so(command: str, tmp_path: Path) -> None:
    (tmp_path / "hosts.ini").write_text("[gpu]\nx\n")
    done = warm.run("gpunode", command, "hosts.ini", cwd=tmp_path)
    assert done.returncode == 1
    assert unnamed(done.stderr, "hosts.ini", "Ansible") == []
    assert "`ansible-inventory -i hosts.ini --list | gpunode init . --from-ansible - --inventory hosts`" in done.stderr


OTHERS = {
    "fleet.py": "[gpu]\n", "notes.txt": "[gpu]\n", "values.yaml": "image: {tag: x}\n", "empty": "", "x.yml": "- 1\n",
    "bad.yml": "{: [\n", "odd.json": "{", "data.json": '{"a": 1}', "gpu-1": "just a file\n",
}  # fmt: skip


def test_a_folder_of_ansible_s_is_recognised_and_other_files_are_not(tmp_path: Path) -> None:
    for name, text in OTHERS.items():
        (tmp_path / name).write_text(text)
        assert recognised(tmp_path / name) is None, name
    (tmp_path / "hosts").write_text("[gpu]\nx\n")
    assert unnamed(str(recognised(tmp_path)), "Ansible") == []
    assert recognised(Path("a" * 5000)) is None
    assert recognised(Path("gpu-1\0")) is None
