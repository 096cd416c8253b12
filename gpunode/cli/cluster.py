"""`gpunode cluster INVENTORY`: what a Kubernetes cluster is to get from the settings of its nodes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from gpunode.base.findings import ExitCode
from gpunode.cli.errors import NO_CLUSTER, end, told
from gpunode.cli.output import is_json, is_quiet, output_option, say_document
from gpunode.cli.selection import called, inventory_argument, set_option

# Raised when a key of the document goes away or changes its meaning; a new key raises nothing.
SCHEMA = 1


@click.command()
@inventory_argument()
@click.option("--values", "values_alone", is_flag=True, help="Print the chart's values alone, for `helm --values`.")
@output_option("the same in JSON (docs/output.md), with --values the values alone", "nothing but --values")
@set_option
def cluster(inventory: Path, values_alone: bool) -> None:
    """Print charts, values, RuntimeClass, own objects and node labels for the hosts of INVENTORY; nothing is contacted.

    Exits 0; 2 where no host gets its GPUs into a cluster by gpunode; 3 where settings are refused, each by
    name; 1 where the inventory cannot be read; 64 usage.
    """
    # Late, because reading inventories imports pyinfra.
    from gpunode.fleet.inventory import host_settings
    from gpunode.kubernetes.device_plugin.desired_cluster import desired_cluster
    from gpunode.kubernetes.device_plugin.methods import to_json
    from gpunode.kubernetes.gpu_operator import operator

    with told():
        hosts = host_settings(inventory)
        actual = desired_cluster(hosts)
    by_helm: dict[str, Any] = {} if actual is None else actual.to_json()
    others = {} if values_alone else to_json(hosts)
    if not values_alone and (beside := operator(hosts)) is not None:
        others["gpu_operator"] = beside.to_json()
    if not by_helm and not others:
        desired = "'helm' or 'gpu-operator'" if values_alone else "'helm', 'manifest', 'gpu-operator' or 'gpushare'"
        said = f"no host has kubernetes.enabled = True with device_plugin.method {desired}"
        end(said, NO_CLUSTER, ExitCode.NEGATIVE)
    labels = {**by_helm.get("labels", {}), **others.get("labels", {})}
    content: dict[str, Any] = {**by_helm, **others, "labels": labels}
    if is_json() and not values_alone:
        say_document(document(content, len(hosts), called(inventory).to_json()))
        return
    # The values alone are what was asked for: an empty file would make helm take the chart's own.
    if is_quiet() and not values_alone:
        return
    if values_alone:
        content = by_helm["values"]
    # To the byte: helm and kubectl read it.
    click.echo(json.dumps(content, indent=2) if is_json() else _yaml(content), nl=is_json())


def document(content: Mapping[str, Any], hosts: int, of: Mapping[str, Any]) -> dict[str, Any]:
    """Return what --output json prints: the content, behind what every document begins with."""
    from gpunode.base.document import head

    counts = {"hosts": {"inventory": hosts, "labelled": len(content["labels"])}}
    return {**head(SCHEMA, counts, ExitCode.GOOD, of), **content}


def _yaml(content: Any) -> str:
    import yaml

    class Dumper(yaml.SafeDumper):
        """Write texts of several lines as blocks, and quote what helm's YAML would not read as a string (1e3)."""

    def text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
        plain = not any(letter.isdecimal() for letter in value[:2])
        style = "|" if "\n" in value else None if plain else '"'
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)

    Dumper.add_representer(str, text)
    return yaml.dump(content, Dumper=Dumper, sort_keys=False, allow_unicode=True)
