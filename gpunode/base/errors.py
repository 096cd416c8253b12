"""What a command ends with where it cannot do its work: an error that has a code."""

from __future__ import annotations

from typing import ClassVar


class CodedError(Exception):
    """Say why a command cannot do its work; `code` is what `gpunode explain` knows it by."""

    code: ClassVar[str]
