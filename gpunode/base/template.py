"""Texts of files out of templates/."""

from __future__ import annotations

from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from gpunode import ROOMS

_TEMPLATES = Environment(
    loader=FileSystemLoader(ROOMS / "templates"),
    undefined=StrictUndefined,
    keep_trailing_newline=True,
    trim_blocks=True,
    autoescape=False,
)


def rendered(source: str, **values: Any) -> str:
    """Return the text of the template `source` (its path below templates/) with `values`."""
    return _TEMPLATES.get_template(source).render(**values)
