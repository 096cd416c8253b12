"""One test per file of tests/cases; tests/support/cases.py says what a file holds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.support import cases

pytestmark = pytest.mark.pure
# In C: the thousand files take five seconds otherwise.
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def _cases() -> Iterator[Any]:
    for file in sorted(cases.CASES.glob("*/*.yaml")):
        found = yaml.load(file.read_text(), LOADER)
        for number, case in enumerate(found if isinstance(found, list) else [found]):
            name = f"{file.parent.name}/{file.stem}" + (f"-{number}" if isinstance(found, list) else "")
            yield pytest.param(file.parent.name, case, id=name)


@pytest.mark.parametrize(("function", "case"), list(_cases()))
def test_case(function: str, case: dict[str, Any]) -> None:
    cases.run(function, case)
