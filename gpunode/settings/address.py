"""Addresses with placeholders: where repositories and files are fetched from."""

from __future__ import annotations

import re

from pydantic import AfterValidator

from gpunode.settings.component import matching

_BRACED = re.compile(r"\{([^{}]*)\}")
_HOST = r"[A-Za-z0-9._-]+(:\d{1,5})?|\[[0-9A-Fa-f:]+\](:\d{1,5})?"
# $(ARCH) is apt's own substitution, $basearch and $releasever are dnf's; any other dollar sign or parenthesis has no
# place in an address.
_URL = rf"(https?://({_HOST})|file://)(/([A-Za-z0-9._~%+@:=,/{{}}-]|\$\(ARCH\)|\$basearch|\$releasever)*)?"

is_address = matching(_URL, "an http://, https:// or file:// address without user, query, blanks or quotes")


def holding_only(*placeholders: str) -> AfterValidator:
    """Return a validator for an address whose placeholders are among those named."""

    def validate(url: str) -> str:
        rest = _BRACED.sub("", url)
        unknown = [name for name in _BRACED.findall(url) if name not in placeholders]
        if unknown or "{" in rest or "}" in rest:
            raise ValueError(f"may hold only the placeholders {', '.join('{' + name + '}' for name in placeholders)}")
        return url

    return AfterValidator(validate)


def filled(url: str, **placeholders: str) -> str:
    """Return an address with its placeholders filled in; raise KeyError where it has one that is not given."""
    return _BRACED.sub(lambda match: placeholders[match[1]], url)
