"""How many inputs hypothesis generates for a property: 25, and 1,000 in `make test-all`."""

from __future__ import annotations

import os

# From here on the inputs differ each time (conftest.py).
MANY = 1000
EXAMPLES = int(os.environ.get("GPUNODE_TEST_EXAMPLES") or 25)
