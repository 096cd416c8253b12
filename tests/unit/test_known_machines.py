"""A Kubernetes cluster's nodes and Terraform's state as hosts and groups; what is left behind is told."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpunode.fleet.known import kubernetes, terraform
from gpunode.fleet.known.machines import Known, KnownError, is_name, only, python_names
from gpunode.fleet.limit import LimitError
from tests.support.messages import unnamed

pytestmark = pytest.mark.pure


def node(name: str, addresses: dict[str, str], **labels: str) -> dict[str, Any]:
    """Return a node as kubectl prints it, without what nobody reads here."""
    listed = [{"address": address, "type": kind} for kind, address in addresses.items()]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/os": "linux", **labels}},
        "status": {"addresses": listed},
    }


def nodes(*items: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "List", "items": list(items), "metadata": {"resourceVersion": ""}}


ROLE = {"node-role.kubernetes.io/control-plane": ""}
H100 = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "nvidia.com/gpu.present": "true"}
CLUSTER = nodes(
    node("cp-1", {"InternalIP": "10.0.0.1", "Hostname": "cp-1"}, **ROLE),
    node("gpu-1", {"InternalIP": "10.0.0.2", "ExternalIP": "192.0.2.2"}, **H100),
    node("gpu-2", {"Hostname": "gpu-2"}, **H100),
    node("win-1", {"InternalIP": "10.0.0.4"}, **{"kubernetes.io/os": "windows"}),
)


def addresses(found: Known) -> dict[str, str | None]:
    return {host.name: host.data.get("ssh_hostname") for host in found.hosts}


def test_nodes_come_by_their_internal_addresses_with_groups_by_role_and_gpu() -> None:
    found = kubernetes.known(CLUSTER)
    assert addresses(found) == {"cp-1": "10.0.0.1", "gpu-1": "10.0.0.2", "gpu-2": None}
    assert found.groups == {"control-plane": ("cp-1",), "NVIDIA-H100-80GB-HBM3": ("gpu-1", "gpu-2")}
    assert found.user == "root"
    (no_address, left_out, everybody) = found.told
    assert no_address.startswith("gpu-2: ")
    assert left_out.startswith("win-1: left out: ") and unnamed(left_out, "'windows'") == []
    assert unnamed(everybody, "every host", "ssh_user", "ssh_key", "group_data") == []


def test_external_addresses_are_taken_where_asked_and_where_there_is_none_it_is_said() -> None:
    found = kubernetes.known(CLUSTER, "external")
    assert addresses(found) == {"cp-1": "10.0.0.1", "gpu-1": "192.0.2.2", "gpu-2": None}
    assert "cp-1: has no ExternalIP; its InternalIP is taken" in found.told


def test_of_two_addresses_of_a_kind_the_first_is_taken() -> None:
    both = node("gpu-1", {})
    both["status"]["addresses"] = [{"type": "InternalIP", "address": each} for each in ("10.0.0.1", "fd00::1")]
    assert addresses(kubernetes.known(nodes(both))) == {"gpu-1": "10.0.0.1"}


def test_a_single_node_is_a_list_of_one() -> None:
    assert [host.name for host in kubernetes.known(node("gpu-1", {})).hosts] == ["gpu-1"]


@pytest.mark.parametrize(
    "document", [[], {}, {"kind": "PodList", "items": []}, {"kind": "List"}, {"kind": "List", "items": [1]}]
)
def test_what_are_no_nodes_is_refused(document: Any) -> None:
    with pytest.raises(KnownError, match="these are no nodes"):
        kubernetes.known(document)


def test_a_list_of_something_else_is_refused_with_its_kind() -> None:
    with pytest.raises(KnownError, match="there is a 'Pod' among the items"):
        kubernetes.known(nodes({"kind": "Pod"}))


# As the providers write them, cut down to what is read.
AWS = {"tags": {"Name": "gpu"}, "public_ip": "192.0.2.1", "private_ip": "10.0.0.1", "key_name": "ops"}
GOOGLE = {
    "name": "mynet-gpu",
    "network_interface": [{"access_config": [{"nat_ip": "192.0.2.7"}], "network_ip": "10.132.0.2"}],
}
AZURE = {"name": "gpu-a", "public_ip_address": "", "private_ip_address": "10.1.0.4", "admin_username": "azureuser"}
STATE = {
    "version": 4,
    "terraform_version": "1.9.5",
    "outputs": {"password": {"value": "hunter2", "type": "string", "sensitive": True}},
    "resources": [
        {"mode": "data", "type": "aws_ami", "name": "x", "instances": [{"attributes": {}}]},
        {
            "mode": "managed",
            "type": "aws_instance",
            "name": "gpu",
            "instances": [
                {"index_key": 0, "attributes": AWS},
                {"index_key": 1, "attributes": {**AWS, "public_ip": "192.0.2.3"}},
                {"index_key": 0, "deposed": "0a1b", "attributes": AWS},
            ],
        },
        {
            "module": "module.eu",
            "mode": "managed",
            "type": "google_compute_instance",
            "name": "vm_instance",
            "instances": [{"schema_version": 6, "attributes": GOOGLE}],
        },
        {
            "mode": "managed",
            "type": "azurerm_linux_virtual_machine",
            "name": "az",
            "instances": [{"attributes": AZURE}],
        },
        {
            "mode": "managed",
            "type": "digitalocean_droplet",
            "name": "off",
            "instances": [{"attributes": {"name": "off-1", "ipv4_address": "", "ipv4_address_private": None}}],
        },
    ],
}


def shown(state: dict[str, Any]) -> dict[str, Any]:
    """Return a state as `terraform show -json` prints it: resources below their modules, `values`, `index`."""
    root: dict[str, Any] = {"resources": [], "child_modules": []}
    for each in state["resources"]:
        resources = [
            {
                "address": "x",
                "mode": each["mode"],
                "type": each["type"],
                "name": each["name"],
                "values": one["attributes"],
            }
            | ({"index": one["index_key"]} if "index_key" in one else {})
            for one in each["instances"]
            if "deposed" not in one
        ]
        if "module" in each:
            root["child_modules"].append({"address": each["module"], "resources": resources})
        else:
            root["resources"] += resources
    return {
        "format_version": "1.0",
        "terraform_version": "1.9.5",
        "values": {"outputs": state["outputs"], "root_module": root},
    }


@pytest.mark.parametrize("document", [STATE, shown(STATE)], ids=["state pull", "show -json"])
def test_machines_of_a_state_come_by_their_external_addresses(document: dict[str, Any]) -> None:
    found = terraform.known(document)
    assert addresses(found) == {"gpu": "192.0.2.1", "gpu-1": "192.0.2.3", "mynet-gpu": "192.0.2.7", "gpu-a": "10.1.0.4"}
    assert found.groups == {"gpu": ("gpu", "gpu-1"), "vm_instance": ("mynet-gpu",), "az": ("gpu-a",)}
    of_azure = next(host for host in found.hosts if host.name == "gpu-a")
    assert of_azure.data == {"ssh_hostname": "10.1.0.4", "ssh_user": "azureuser", "_sudo": True}
    (internal, left_out, user, key) = found.told
    assert internal.startswith("gpu-a: ") and left_out.startswith("off-1: left out: ")
    assert user.startswith("gpu, gpu-1, mynet-gpu: ") and unnamed(user, "ssh_user") == []
    assert unnamed(key.partition(": ")[0], "gpu", "gpu-1", "mynet-gpu", "gpu-a") == [] and unnamed(key, "ssh_key") == []
    assert "hunter2" not in repr(found)


def test_internal_addresses_are_taken_where_asked() -> None:
    assert addresses(terraform.known(STATE, "internal"))["mynet-gpu"] == "10.132.0.2"


OUTPUT = {"gpu-1": {"address": "192.0.2.1", "user": "ubuntu", "port": 2222}, "gpu-2": "192.0.2.2"}


@pytest.mark.parametrize(
    "document",
    [
        {"gpu_nodes": {"sensitive": False, "type": "x", "value": OUTPUT}, "other": {"value": 1}},
        {**STATE, "outputs": {"gpu_nodes": {"value": OUTPUT, "type": "x"}}},
        {"format_version": "1.0", "values": {"outputs": {"gpu_nodes": {"sensitive": False, "value": OUTPUT}}}},
    ],
    ids=["output -json", "state pull", "show -json"],
)
def test_an_output_of_ones_own_goes_before_resources(document: dict[str, Any]) -> None:
    found = terraform.known(document)
    assert {host.name: dict(host.data) for host in found.hosts} == {
        "gpu-1": {"ssh_hostname": "192.0.2.1", "ssh_user": "ubuntu", "ssh_port": 2222, "_sudo": True},
        "gpu-2": {"ssh_hostname": "192.0.2.2"},
    }


@pytest.mark.parametrize(
    ("document", "says"),
    [
        ([], "this is none of Terraform's"),
        ({"format_version": "1.2", "planned_values": {}}, "this is a plan"),
        ({"version": 3, "modules": []}, "a state of version 3"),
        ({"a": 1}, "this is no state"),
        ({"workers": {"value": []}}, "no output gpu_nodes among 'workers'"),
        (
            {"version": 4, "resources": [{"mode": "managed", "type": "null_resource", "name": "x", "instances": [{}]}]},
            "none of its 1 resources is a machine that gpunode knows .*aws_instance.*docs/how-to",
        ),
        ({"version": 4, "resources": ["x"]}, "not as it should be"),
        (
            {"version": 4, "resources": [{"mode": "managed", "instances": [{}]}]},
            "not as it should be: KeyError: 'type'",
        ),
        ({"gpu_nodes": {"value": OUTPUT, "sensitive": True}}, "marked as sensitive"),
        ({"gpu_nodes": {"value": 7}}, "must be an address, a list of machines"),
    ],
)
def test_what_is_no_state_is_refused(document: Any, says: str) -> None:
    with pytest.raises(KnownError, match=says):
        terraform.known(document)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "kind",
                    "items",
                    "metadata",
                    "name",
                    "labels",
                    "status",
                    "addresses",
                    "type",
                    "address",
                    "mode",
                    "resources",
                    "instances",
                    "attributes",
                    "version",
                    "values",
                    "root_module",
                    "outputs",
                    "gpu_nodes",
                    "value",
                    "tags",
                    "Name",
                    "format_version",
                    "terraform_version",
                ]
            )
            | st.text(max_size=4),
            inner,
            max_size=4,
        )
    ),
    max_leaves=16,
)
KIND = st.sampled_from(["aws_instance", "google_compute_instance", "x"])
RESOURCES = st.lists(
    st.fixed_dictionaries(
        {
            "mode": st.just("managed"),
            "type": KIND,
            "name": st.text(max_size=4),
            "instances": st.lists(
                st.fixed_dictionaries(
                    {
                        "attributes": st.dictionaries(
                            st.sampled_from(["tags", "public_ip", "private_ip", "name", "network_interface"]), JSON
                        )
                    }
                ),
                max_size=3,
            ),
        }
    ),
    max_size=3,
).map(lambda found: {"version": 4, "resources": found})


@given(JSON | RESOURCES, st.sampled_from(["internal", "external"]))
def test_any_document_is_read_or_refused(document: Any, address: str) -> None:
    for source in (kubernetes, terraform):
        try:
            found = source.known(document, address)
        except KnownError:
            continue
        names = [host.name for host in found.hosts]
        assert len(set(names)) == len(names) and all(map(is_name, names))
        assert all(is_name(host.data.get("ssh_hostname", "x")) for host in found.hosts)
        assert all(set(members) <= set(names) for members in found.groups.values())


def test_a_limit_is_a_name_a_glob_or_a_group_and_one_that_names_nobody_is_refused() -> None:
    found = kubernetes.known(CLUSTER)
    assert list(addresses(only(found, ["gpu-*"]))) == ["gpu-1", "gpu-2"]
    # Of others nothing is told.
    assert not any("gpu-2" in sentence for sentence in only(found, ["gpu-1"]).told)
    assert any("gpu-2: says no address" in sentence for sentence in only(found, ["gpu-2"]).told)
    assert only(found, ["control-plane", "gpu-1"]).groups == {
        "control-plane": ("cp-1",),
        "NVIDIA-H100-80GB-HBM3": ("gpu-1",),
    }
    with pytest.raises(LimitError, match=r"^cpu: .* or a group: NVIDIA-H100-80GB-HBM3, control-plane$"):
        only(found, ["gpu-1", "cpu"])


def test_names_of_groups_become_identifiers_that_nobody_else_has() -> None:
    assert python_names(["gpu-nodes", "gpu_nodes", "9", "class", "lab", "_x", "é"], {"lab", "all"}) == {
        "gpu-nodes": "gpu_nodes_hosts",
        "gpu_nodes": "gpu_nodes",
        "9": "group_9",
        "class": "group_class",
        "lab": "lab_hosts",
        "_x": "x",
        "é": "group",
    }


@given(st.lists(st.text(max_size=6), unique=True), st.sets(st.sampled_from(["a", "b", "group", "a_hosts"])))
def test_every_group_gets_another_name_that_is_an_identifier(names: list[str], taken: set[str]) -> None:
    found = python_names(names, taken)
    assert list(found) == names and len(set(found.values())) == len(names)
    assert all(name.isidentifier() and not name.startswith("_") and name not in taken for name in found.values())
