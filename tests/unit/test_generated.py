"""What is generated for a test is the same while the test is, whatever else its process has imported."""

from __future__ import annotations

import pytest
from hypothesis.internal.conjecture import providers

from tests.unit.generated import EXAMPLES, MANY

pytestmark = pytest.mark.pure


@pytest.mark.skipif(EXAMPLES >= MANY, reason="test-all's are others each time")
def test_no_constant_of_a_module_becomes_an_input() -> None:
    assert len(providers._get_local_constants()) == 0
