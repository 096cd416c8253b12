"""What several tests share with unit/test_toolkit.py."""

from __future__ import annotations

from dataclasses import replace

from gpunode.base.template import rendered
from gpunode.components.toolkit import PACKAGES, CdiSpecification
from tests.support.verify import GOOD

LOADED = "580.95.05"


OWN = CdiSpecification("/etc/cdi/nvidia.yaml", LOADED, True)


REFRESHED = CdiSpecification("/var/run/cdi/nvidia.yaml", LOADED)


HELD = replace(
    GOOD.toolkit, held=tuple(sorted(PACKAGES)),
    hold_text=rendered("toolkit-preferences", packages=GOOD.toolkit.to_hold),
)  # fmt: skip
