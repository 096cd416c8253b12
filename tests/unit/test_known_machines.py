"""What a cluster's nodes and Terraform's state are read as, whatever they hold; tests/cases has the documents."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpunode.fleet.inventory import LimitError
from gpunode.fleet.known import kubernetes, terraform
from gpunode.fleet.known.machines import Known, KnownError, KnownHost, is_name, only, python_names
from tests.support.generated import json_values
from tests.support.messages import unnamed

pytestmark = pytest.mark.pure

KEYS = (
    "kind", "items", "metadata", "name", "labels", "status", "addresses", "type", "address", "mode", "resources",
    "instances", "attributes", "version", "values", "root_module", "outputs", "gpu_nodes", "value", "tags", "Name",
    "format_version", "terraform_version",
)  # fmt: skip
JSON = json_values(st.sampled_from(KEYS) | st.text(max_size=4), 16)
ATTRIBUTES = st.dictionaries(st.sampled_from(["tags", "public_ip", "private_ip", "name", "network_interface"]), JSON)
RESOURCE = {
    "mode": st.just("managed"),
    "type": st.sampled_from(["aws_instance", "google_compute_instance", "x"]),
    "name": st.text(max_size=4),
    "instances": st.lists(st.fixed_dictionaries({"attributes": ATTRIBUTES}), max_size=3),
}
RESOURCES = st.lists(st.fixed_dictionaries(RESOURCE), max_size=3).map(lambda found: {"version": 4, "resources": found})


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


def test_a_secret_of_a_state_is_not_copied() -> None:
    secret = {"password": {"value": "hunter2", "type": "string", "sensitive": True}}
    instance = {"attributes": {"name": "vm", "public_ip": "192.0.2.1", "metadata": secret}}
    resource = {"mode": "managed", "type": "aws_instance", "name": "gpu", "instances": [instance]}
    found = terraform.known({"version": 4, "outputs": secret, "resources": [resource]})
    assert found.hosts and "hunter2" not in json.dumps([repr(found), found.told])


def test_a_limit_is_a_name_a_glob_or_a_group_and_one_that_names_nobody_is_refused() -> None:
    hosts = tuple(map(KnownHost, ("cp-1", "gpu-1", "gpu-2")))
    known = Known("x", hosts, {"control": ("cp-1",), "H100": ("gpu-1", "gpu-2")}, {"no address": ("gpu-2",)})
    found = only(known, ["gpu-*"])
    assert ([host.name for host in found.hosts], found.groups) == (["gpu-1", "gpu-2"], {"H100": ("gpu-1", "gpu-2")})
    found = only(known, ["control", "gpu-1"])
    assert (found.groups, found.notes) == ({"control": ("cp-1",), "H100": ("gpu-1",)}, {})
    assert only(known, ["gpu-2"]).notes == known.notes
    with pytest.raises(LimitError) as refused:
        only(known, ["gpu-1", "cpu"])
    assert unnamed(str(refused.value), "cpu", "H100", "control") == []


@given(st.lists(st.text(max_size=6), unique=True), st.sets(st.sampled_from(["a", "b", "group", "a_hosts"])))
def test_every_group_gets_another_name_that_is_an_identifier(names: list[str], taken: set[str]) -> None:
    found = python_names(names, taken)
    assert list(found) == names and len(set(found.values())) == len(names)
    assert all(name.isidentifier() and not name.startswith("_") and name not in taken for name in found.values())
