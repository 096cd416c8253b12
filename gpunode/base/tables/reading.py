"""Read the files of gpunode/data into frozen objects, whose fields say what may stand in a file."""

from __future__ import annotations

from collections.abc import Mapping
from functools import _lru_cache_wrapper, cache
from importlib import resources
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, TypeVar

import yaml
from pydantic import AfterValidator, ConfigDict, TypeAdapter, ValidationError

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")
# A mapping of a file, which nobody can change.
Table = Annotated[Mapping[K, V], AfterValidator(MappingProxyType)]


class TableError(ValueError):
    """Say what in a file of gpunode/data is wrong: the file, the place, what is allowed, and what is there."""


class Row:
    """Hold what a row of a table has: a key that is no field of it is an error."""

    __pydantic_config__: ClassVar = ConfigDict(extra="forbid")


def text(name: str) -> str:
    """Return a file of gpunode/data."""
    return resources.files("gpunode.data").joinpath(name).read_text(encoding="utf-8")


def content(name: str) -> dict[str, Any]:
    """Return a table of gpunode/data as it stands there."""
    # libyaml's, where PyYAML has it: Python's own takes 0.08 s for these tables, in every command and run.
    found: dict[str, Any] = yaml.load(text(name), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    return found


def checked(shape: type[T], found: Any, name: str) -> T:
    """Return what was read from a file as an object of `shape`; raise TableError."""
    try:
        read: T = TypeAdapter(shape).validate_python(found)
    except ValidationError as error:
        told = (
            f"{'.'.join(map(str, each['loc']))}: {each['msg']}, and not {each['input']!r}" for each in error.errors()
        )
        raise TableError(f"gpunode/data/{name}: {'; '.join(told)}") from error
    return read


def table(shape: type[T], name: str, key: str | None = None) -> _lru_cache_wrapper[T]:
    """Return a function that reads a file, or one key of it, as an object of `shape`, at its first call alone.

    It raises TableError.
    """
    return cache(lambda: checked(shape, content(name) if key is None else content(name)[key], name))
