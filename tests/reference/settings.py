"""Generate docs/settings.md from the settings' models."""

from __future__ import annotations

import ast
import inspect
import json
import textwrap
import types
from collections.abc import Iterator
from itertools import pairwise
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from gpunode.settings import OWN_DATA_PREFIX, Component, component_models
from gpunode.settings.component import component_of
from gpunode.settings.layers import REPLACE

_HEAD = f"""# Settings

Generated from `gpunode/settings` by `make docs`; a test keeps it current. Do not edit by hand.

Settings are host or group data: a name per component, each a mapping. Nothing is coerced: versions are strings, quoted
(`"12.10"`, not `12.10`, which is 12.1). Unknown names are refused; your own data go under names that begin with
`{OWN_DATA_PREFIX}`. A host's mapping is merged with its group's key by key, lists are replaced; one with
`"{REPLACE}": True` replaces its group's as a whole, and `gpunode check` names what that drops.
`gpunode check INVENTORY` lists every mistake of every host, without connecting to any.

```python
# inventories/group_data/prod.py
driver = {{"branch": "580", "flavour": "open"}}
cuda = {{"version": "12.9"}}
```

`--set driver.version=580.95.05` gives `check`, `plan`, `drift`, `apply`, `rollout`, `ci` and `cluster` a setting above
what the inventory says; it may be given more than once. Lists and mappings are JSON. Behind a setting that is a mapping
by names of your own, the rest is one name, dots and all: `--set kubernetes.expected_resources.nvidia.com/gpu=8`; in a
chart's `values` a dot leads into a mapping, as with helm's own `--set`, and a key with a dot is given as JSON.

The setting is for all hosts of the inventory, with `--limit` for those hosts alone: no other is judged by it. What
hosts must have alike (a cluster's release, the driver of an IMEX domain) is then refused, with the way out: without
`--limit`, or in the inventory. `disruption.max_parallel`, of which a run has one, is for all hosts in any case.
Commands that are suggested carry `--limit` and `--set`, after a run by pyinfra's own command line its options, too
(`--data`, `--sudo`, `--ssh-user` …; a password is shown as `<not shown>`). A run without `--set`, `pyinfra INVENTORY
deploys/gpu_node.py` too, puts back what was set. Logs, the journal of a rollout and reports name what was set, but for
values that may be secret (names such as `password` or `token`, addresses with an `@`): there stands `<not shown>`,
which is refused where it is pasted.
"""


def kind(annotation: Any) -> str:
    """Return a field's type in words: `string`, `true or false`, `one of …`, `list of string`."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return kind(arguments[0])
    if origin in (Union, types.UnionType):
        return " or ".join("None" if part is type(None) else kind(part) for part in arguments)
    if origin is Literal:
        return "one of " + ", ".join(f"`{choice}`" for choice in arguments)
    if origin in (list, tuple):
        return f"list of {kind(arguments[0])}"
    if origin is dict:
        return f"mapping of {kind(arguments[0])} to {kind(arguments[1])}"
    return {str: "string", bool: "true or false", int: "whole number", Any: "anything"}.get(
        annotation, getattr(annotation, "__name__", "?")
    )


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    text = json.dumps(field.get_default(call_default_factory=True))
    return f"`{ {'null': 'None', 'true': 'True', 'false': 'False'}.get(text, text) }`"


def described(model: type[Component]) -> dict[str, str]:
    """Return setting -> the text below it in its model's source; what a model says itself before what it inherits."""
    found: dict[str, str] = {}
    for each in model.mro()[: model.mro().index(Component)]:
        (source,) = ast.parse(textwrap.dedent(inspect.getsource(each))).body
        for field, below in pairwise(getattr(source, "body", ())):
            match field, below:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    found.setdefault(name, " ".join(text.split()))
    return found


def _rows(model: type[Component], prefix: str) -> Iterator[str]:
    effects = described(model)
    for name in sorted(model.model_fields, key=lambda each: each not in model.__annotations__):
        field = model.model_fields[name]
        if isinstance(field.annotation, type) and issubclass(field.annotation, Component):
            yield from _rows(field.annotation, f"{prefix}{name}.")
            continue
        # The model of each value of a mapping of settings.
        inner = component_of(get_args(field.annotation)[1]) if get_origin(field.annotation) is dict else None
        cells = (f"`{prefix}{name}`", kind(field.annotation), _default(field), effects[name])
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
        if inner is not None:
            yield from _rows(inner, f"{prefix}{name}.NAME.")


def document() -> str:
    """Return the text of docs/settings.md."""
    parts = [_HEAD]
    for name, model in component_models().items():
        rows = "\n".join(_rows(model, ""))
        what = " ".join((model.__doc__ or "").split())
        parts.append(f"## {name}\n\n{what}\n\n| name | type | default | effect |\n|---|---|---|---|\n{rows}\n")
    return "\n".join(parts)
