"""How many inputs hypothesis generates for a property: 25, and 1,000 in `make test-all`; and any JSON."""

from __future__ import annotations

import os
from typing import Any

from hypothesis import strategies as st

# From here on the inputs differ each time (conftest.py).
MANY = 1000
EXAMPLES = int(os.environ.get("GPUNODE_TEST_EXAMPLES") or 25)


def json_values(keys: st.SearchStrategy[str], leaves: int = 12) -> st.SearchStrategy[Any]:
    """Return any value of JSON with such keys."""
    return st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=8),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=4),
        max_leaves=leaves,
    )
