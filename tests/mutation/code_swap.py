"""A changed function, or text, in place of the one that was imported, so that nothing is imported anew."""

from __future__ import annotations

import functools
import gc
import sys
from collections.abc import Iterator
from types import CodeType, FunctionType

_OPTIMIZED = 0x1  # of a function's code, not of a class' or a module's


def changed_functions(path: str, before: str, after: str) -> list[tuple[CodeType, CodeType]] | None:
    """Return (old, new) of each function that differs; None where anything else differs, as a default or a constant."""
    old, new = (compile(text, path, "exec", dont_inherit=True) for text in (before, after))
    try:
        return list(_pairs(old, new))
    except ValueError:
        return None


def _pairs(old: CodeType, new: CodeType) -> Iterator[tuple[CodeType, CodeType]]:
    """Yield the functions that differ, of a module or a class; raise ValueError where it differs itself."""
    if (old.co_code, old.co_names) != (new.co_code, new.co_names) or len(old.co_consts) != len(new.co_consts):
        raise ValueError("it differs itself")
    for one, other in zip(old.co_consts, new.co_consts, strict=True):
        if not isinstance(one, CodeType) or not isinstance(other, CodeType):
            # As text: True is 1, and 0.0 is -0.0.
            if repr(one) != repr(other):
                raise ValueError("a constant differs")
        elif not one.co_flags & _OPTIMIZED:
            yield from _pairs(one, other)
        elif one != other or one.co_consts != other.co_consts:
            if one.co_freevars != other.co_freevars or one.co_name != other.co_name:
                raise ValueError("a closure differs")
            yield one, other


def put_in(path: str, pairs: list[tuple[CodeType, CodeType]]) -> int:
    """Give the functions of a file that was imported their new code; return how many of these there are."""
    codes = {(old.co_qualname, old.co_firstlineno): new for old, new in pairs}
    done = set()
    for each in gc.get_objects():
        if type(each) is FunctionType and each.__code__.co_filename == path:
            place = (each.__code__.co_qualname, each.__code__.co_firstlineno)
            if place in codes:
                each.__code__ = codes[place]
                done.add(place)
        elif isinstance(each, functools._lru_cache_wrapper):
            wrapped = getattr(each, "__wrapped__", None)
            if isinstance(wrapped, FunctionType) and wrapped.__code__.co_filename == path:
                each.cache_clear()
    return len(done)


def put_in_text(tree: str, before: str, after: str) -> int:
    """Give constants that hold a text the other one, in modules below `tree` and their classes; return how many."""
    done = 0
    for module in list(sys.modules.values()):
        if not (getattr(module, "__file__", None) or "").startswith(tree):
            continue
        for holder in (module, *(each for each in vars(module).values() if isinstance(each, type))):
            for name, value in list(vars(holder).items()):
                if type(value) is str and before in value and not name.startswith("__"):
                    setattr(holder, name, value.replace(before, after))
                    done += 1
    return done
