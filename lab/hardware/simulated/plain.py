"""What json and uuid do, for programs that start hundreds of times: to import those takes longer than all the rest."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class _Reading:
    """Hold how json.loads reads by default, as the scanner of json that is written in C asks for it."""

    strict = True
    object_hook = None
    object_pairs_hook = None
    parse_float = float
    parse_int = int
    parse_constant = float


def parse_json(text: str) -> Any:
    """Return what json.loads returns, by its scanner alone: the module json imports re.

    Raises ValueError with json's own words.
    """
    try:
        from _json import make_scanner

        bare = text.strip(" \t\n\r")
        value, end = make_scanner(_Reading)(bare, 0)  # type: ignore[arg-type]
        if end == len(bare):
            return value
    except (ImportError, StopIteration, ValueError):
        # json itself, below, says what is wrong and where.
        pass
    import json

    return json.loads(text)


def name_uuid(namespace: bytes, name: str) -> str:
    """Return what uuid.uuid5 returns for a namespace's 16 bytes, without uuid and OpenSSL."""
    try:
        from _sha1 import sha1  # type: ignore[import-not-found]
    except ImportError:
        from hashlib import sha1
    digest = bytearray(sha1(namespace + name.encode()).digest()[:16])
    digest[6] = digest[6] & 0x0F | 0x50
    digest[8] = digest[8] & 0x3F | 0x80
    text = digest.hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


def data_file(name: str) -> str:
    """Return the text of a file beside this module, be it in a folder or in a zip archive."""
    spec: Any = __spec__
    return str(spec.loader.get_data(os.path.join(os.path.dirname(__file__), name)), "utf-8")
