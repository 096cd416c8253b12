"""How many inputs are generated for what has to hold for any: 100 in `make test`, 1,000 in `make test-slow`, few in
`make test-fast` (tests/fast.py)."""

from __future__ import annotations

import os

# From here on they are others each time (conftest.py).
MANY = 1000
EXAMPLES = int(os.environ.get("GPUNODE_TEST_EXAMPLES") or 100)
