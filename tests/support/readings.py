"""Helpers and data for the tests of readings."""

from __future__ import annotations

import base64


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
