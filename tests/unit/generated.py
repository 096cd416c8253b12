"""How many inputs are generated for what has to hold for any: a thousand in `make test`, fewer while working."""

from __future__ import annotations

import os

EXAMPLES = int(os.environ.get("GPUNODE_TEST_EXAMPLES") or 100)
