"""Where a CI job's machines come from: the environment, terraform's JSON, vagrant's ssh-config; and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpunode.fleet.ci.machines import MachinesError, known_hosts_made, machines_from
from tests.support.generated import json_values
from tests.support.messages import unnamed

pytestmark = pytest.mark.pure

KEY = {"GPUNODE_CI_KEY": "/keys/ci"}


def of_json(tmp_path: Path, content: Any, **environment: str) -> list[tuple[str, dict[str, Any]]]:
    path = tmp_path / "machines.json"
    path.write_text(json.dumps(content))
    return machines_from({"GPUNODE_CI_MACHINES": str(path), **KEY, **environment})


def test_a_json_file_holds_machines_also_below_terraforms_output(tmp_path: Path) -> None:
    value = ["192.0.2.1", "192.0.2.2"]
    wrapped = {"gpu_nodes": {"sensitive": False, "type": "string", "value": value}, "other": {"value": "x"}}
    for found in (of_json(tmp_path, wrapped), of_json(tmp_path, value)):
        assert [data["ssh_hostname"] for _, data in found] == value
    content = {"workers": {"value": ["192.0.2.9"]}, "addresses": {"value": ["192.0.2.1"]}}
    assert [name for name, _ in of_json(tmp_path, content, GPUNODE_CI_OUTPUT="addresses")] == ["192.0.2.1"]
    with pytest.raises(MachinesError) as refused:
        of_json(tmp_path, content)
    assert unnamed(str(refused.value), "gpu_nodes", "addresses", "workers", "GPUNODE_CI_OUTPUT") == []


@pytest.mark.parametrize("name", ["@local", "a b"])
def test_a_name_that_pyinfra_takes_for_something_else_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(MachinesError) as refused:
        of_json(tmp_path, {name: "192.0.2.1"})
    assert unnamed(str(refused.value), repr(name)) == []


def test_vagrants_file_gives_each_machine_its_port_user_and_key() -> None:
    # As vagrant 2.4 prints it for two machines.
    path = Path(__file__).parent / "data" / "vagrant-ssh-config"
    found = dict(machines_from({"GPUNODE_CI_SSH_CONFIG": str(path)}))
    assert (found["gpu-1"]["ssh_port"], found["gpu-1"]["ssh_user"], found["gpu-1"]["_sudo"]) == (2222, "vagrant", True)
    assert found["gpu-1"]["ssh_key"] == "/work/.vagrant/machines/gpu 1/private_key"
    assert (found["gpu-2"]["ssh_hostname"], found["gpu-2"]["_sudo"]) == ("192.0.2.7", False)


@pytest.mark.parametrize("option", ["ProxyCommand nc %h %p", "ProxyJump jump", "HostKeyAlias b", "IdentityFile /b"])
def test_an_option_of_an_ssh_config_that_is_not_carried_over_is_refused_by_its_name(
    option: str, tmp_path: Path
) -> None:
    path = tmp_path / "ssh-config"
    path.write_text(f"Host gpu\n  HostName 192.0.2.7\n  IdentityFile /a\n  {option}\n")
    with pytest.raises(MachinesError) as refused:
        machines_from({"GPUNODE_CI_SSH_CONFIG": str(path)})
    assert unnamed(str(refused.value), "gpu", option.split()[0], "ssh_config_file") == []


def test_keys_of_new_machines_are_noted_only_where_that_is_asked_for(tmp_path: Path) -> None:
    known_hosts = tmp_path / "new" / "known_hosts"
    asked = {"GPUNODE_CI_HOST": "192.0.2.1", "GPUNODE_CI_KNOWN_HOSTS": str(known_hosts), **KEY}
    known_hosts_made(data for _, data in machines_from(asked))
    assert not known_hosts.exists()
    ((_, data),) = machines_from({**asked, "GPUNODE_CI_HOST_KEYS": "accept-new"})
    assert data["ssh_strict_host_key_checking"] == "accept-new"
    known_hosts_made([data])
    assert known_hosts.stat().st_mode & 0o777 == 0o600


KEYS = st.sampled_from(["value", "address", "port", "gpu_nodes", "x"])


@given(content=json_values(KEYS, 8))
def test_any_json_is_taken_or_refused_with_a_reason(content: Any, tmp_path_factory: pytest.TempPathFactory) -> None:
    try:
        found = of_json(tmp_path_factory.mktemp("machines"), content)
    except MachinesError as refused:
        assert "machines.json" in str(refused) or "GPUNODE_CI" in str(refused)
    else:
        assert found and all(isinstance(data["ssh_hostname"], str) for _, data in found)


@given(content=st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_any_file_instead_of_vagrants_is_taken_or_refused_with_a_reason(
    content: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("vagrant") / "ssh-config"
    path.write_bytes(content)
    try:
        machines_from({"GPUNODE_CI_SSH_CONFIG": str(path), **KEY})
    except MachinesError as refused:
        assert str(refused)
