"""What several tests share with unit/test_readings.py."""

from __future__ import annotations

import base64


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
