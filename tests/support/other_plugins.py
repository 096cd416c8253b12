"""Helpers and data for the tests of other plugins."""

from __future__ import annotations

from collections.abc import Sequence

from gpunode.settings.plugin_manifest import ManifestError, parse_manifest
from tests.support.messages import unnamed

CHART = {
    "chart": "fpga-plugin",
    "repository": "https://charts.example/fpga",
    "version": "1.2.3",
    "namespace": "fpga",
    "values": {"tolerations": []},
}


def mistakes(text: str, names: Sequence[str] = (), times: int = 1) -> list[int | str]:
    """Return the lines of a manifest's mistakes, and what they do not name of `names`; `times`: the text repeated."""
    try:
        parse_manifest(text * times, "fpga.yaml")
    except ManifestError as error:
        found = [int(each.removeprefix("fpga.yaml:").partition(": ")[0]) for each in error.mistakes]
        return [*found, *unnamed(str(error), *names)]
    return []
