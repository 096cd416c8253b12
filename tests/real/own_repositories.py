"""Where a distribution's own packages are: own_repositories.yaml."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from gpunode.base.tables.sources import Distribution
from tests.real.keys import Closed


def addresses(row: Distribution) -> list[tuple[str, bool]]:
    """Return (address, whether it is that of a list of mirrors); raise Closed where customers alone may read it."""
    table: dict[str, Any] = yaml.safe_load((Path(__file__).parent / "own_repositories.yaml").read_text("utf-8"))
    if row.id in table["closed"]:
        raise Closed(f"the archive of {row.name} is open to customers of {table['closed'][row.id]} alone")
    known = table["distributions"][row.id]
    major = row.version.partition(".")[0]
    urls = [(url.replace("{major}", major), False) for url in known.get("urls", known.get(row.version, []))]
    return urls + [(url, True) for url in known.get("mirror_lists", [])]
