"""A small set of combinations in which every two values of different factors meet."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations, product
from typing import Any

Row = dict[str, Any]


def all_rows(factors: Mapping[str, Sequence[Any]], is_valid: Callable[[Row], bool]) -> list[Row]:
    """Return every valid combination, as factor -> value."""
    return [row for values in product(*factors.values()) if is_valid(row := dict(zip(factors, values, strict=True)))]


def pairwise(factors: Mapping[str, Sequence[Any]], is_valid: Callable[[Row], bool]) -> list[Row]:
    """Return valid combinations with each pair of values that any valid combination has; always the same ones."""
    numbers: defaultdict[object, int] = defaultdict(lambda: len(numbers))
    rows = [
        (row, sum(1 << numbers[pair] for pair in combinations(row.items(), 2))) for row in all_rows(factors, is_valid)
    ]
    missing, chosen, least = (1 << len(numbers)) - 1, [], len(factors) ** 2
    # The combinations with the most pairs that are still missing come first.
    while least := least * 3 // 4:
        for row, pairs in rows:
            if (pairs & missing).bit_count() >= least:
                missing &= ~pairs
                chosen.append(row)
    return chosen
