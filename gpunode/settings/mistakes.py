"""What pydantic finds wrong in host data, told as problems by the key that somebody wrote."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, get_args, get_origin

from gpunode.base.messages import mistake
from gpunode.settings.component import Component
from gpunode.settings.problems import SECRET, Problem, is_secret, nearest, written

UNKNOWN_NAME = mistake(
    "settings.unknown-name", "A name in the host's data is unknown to gpunode and pyinfra.",
    "It is misspelt, from another gpunode, or your own. Your own names may begin with the prefix in the message.",
    remedy="write the intended name (docs/settings.md lists all), or remove it",
)  # fmt: skip
FORMER_NAME = mistake(
    "settings.former-name", "A setting is given by its former and by its present name.",
    remedy="leave the former name out",
)  # fmt: skip
NOT_ALLOWED = mistake(
    "settings.not-allowed", "A setting has a value that is not allowed.",
    remedy="write one of the values that the message lists",
)  # fmt: skip
WRONG_TYPE = mistake(
    "settings.wrong-type", "A setting has a value of the wrong type.",
    "Versions have to be strings: 12.10 without quotes is read as 12.1.",
    remedy="write the type that the message names; quote versions",
)  # fmt: skip
_LONGEST_KEY = 120
_EXPECTED = {
    "string_type": "a string",
    "bool_type": "True or False",
    "int_type": "a whole number",
    "model_type": "a mapping of settings",
    "tuple_type": "a list",
    "dict_type": "a mapping",
}


def component_of(annotation: Any) -> type[Component] | None:
    """Return the model that a field has; None where it has none."""
    return annotation if isinstance(annotation, type) and issubclass(annotation, Component) else None


def component_of_each(annotation: Any) -> type[Component] | None:
    """Return the model of each value of a mapping of settings; None where a field is no such mapping."""
    return component_of(get_args(annotation)[1]) if get_origin(annotation) is dict else None


def dotted(*parts: object) -> str:
    """Return a key as one line, whatever characters somebody put into it."""
    text = ".".join(str(part) for part in parts)
    return text if text.isprintable() and len(text) <= _LONGEST_KEY and "@" not in text else written(text)


def _submodel(model: type[Component], path: tuple[int | str, ...]) -> type[Component]:
    names = iter(path)
    for name in names:
        field = model.model_fields.get(str(name))
        inner = component_of(field.annotation) if field else None
        if field is not None and inner is None:
            # By a name of the user's own.
            inner = component_of_each(field.annotation)
            if next(names, None) is None:
                break
        if inner is None:
            break
        model = inner
    return model


def _choices(model: type[Component], name: int | str) -> tuple[str, ...]:
    field = model.model_fields.get(str(name))
    if field is None:
        return ()
    # Beside None, where that is allowed as well.
    literals = [part for part in (field.annotation, *get_args(field.annotation)) if get_origin(part) is Literal]
    return tuple(str(choice) for part in literals for choice in get_args(part))


def problem_of(component: str, model: type[Component], error: Mapping[str, Any]) -> Problem:
    """Return an error of pydantic's as a problem; component: the name under which host data has the settings."""
    path: tuple[int | str, ...] = error["loc"]
    key = dotted(component, *path)
    kind, value = error["type"], error["input"]
    if kind == "extra_forbidden":
        if now := _submodel(model, path[:-1]).former.get(str(path[-1])):
            message = f"is the former name of {now}, which is set, too; leave it out"
            return Problem(key, written(value), message, code=FORMER_NAME)
        allowed = tuple(_submodel(model, path[:-1]).model_fields)
        near = nearest(str(path[-1]), allowed)
        shown = SECRET if is_secret(path[-1]) else written(value)
        message = f"unknown setting{f'; did you mean {near!r}?' if near else ''}"
        return Problem(key, shown, message, allowed, code=UNKNOWN_NAME)
    if kind == "literal_error":
        return Problem(
            key, written(value), "not allowed", _choices(_submodel(model, path[:-1]), path[-1]), code=NOT_ALLOWED
        )
    if kind == "not_listed":
        return Problem(key, written(value), str(error["msg"]), tuple(error["ctx"]["allowed"]), code=NOT_ALLOWED)
    if kind == "value_error":
        return Problem(key, written(value), str(error["ctx"]["error"]))
    if kind == "too_long":
        return Problem(key, written(value), f"has {len(value)} entries; {error['ctx']['max_length']} are the most")
    if kind == "greater_than_equal":
        return Problem(key, written(value), f"must be {error['ctx']['ge']} or more")
    if kind == "string_type" and isinstance(value, int | float) and not isinstance(value, bool):
        # 12.10 would be read as 12.1: numbers are refused even where they happen to come out right.
        return Problem(key, written(value), f"must be a string: quote it, '{value}'", code=WRONG_TYPE)
    if kind in _EXPECTED:
        message = f"must be {_EXPECTED[kind]}, not {type(value).__name__}"
        return Problem(key, written(value), message, code=WRONG_TYPE)
    return Problem(key, written(value), str(error["msg"]))
