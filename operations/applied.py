"""The record on the node of what was applied, for a later gpunode to know what an earlier one did."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.metadata import version
from typing import Any

from gpunode.settings import Settings
from operations.failure import node_operation
from operations.files import content

PATH = "/var/lib/gpunode/applied.json"
SCHEMA = 1


@node_operation
def recorded(settings: Settings) -> Iterator[Any]:
    """Keep /var/lib/gpunode/applied.json at gpunode's version, the settings' digest and the record's schema.

    + settings: the host's settings
    """
    record = {"gpunode": version("gpunode"), "schema": SCHEMA, "settings": settings.digest()}
    yield from content._inner(PATH, json.dumps(record, indent=2, sort_keys=True) + "\n")
