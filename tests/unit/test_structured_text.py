"""What others wrote is read within limits, by one module; a text that breaks one is that node's finding alone."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gpunode.base.structured_text import (
    DOCUMENT,
    FILE,
    TextError,
    TextLimitError,
    load_documents,
    load_json,
    load_toml,
    load_yaml,
)
from tests.support import hostile_text

pytestmark = pytest.mark.pure

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted(
    path for folder in ("gpunode", "operations", "facts", "deploys") for path in (ROOT / folder).glob("**/*.py")
)
_YAML = ("compose", "compose_all", "full_load", "load", "load_all", "parse", "safe_load", "safe_load_all", "scan")
PARSERS = {
    *(f"yaml.{name}" for name in _YAML), "json.load", "json.loads", "tomllib.load", "tomllib.loads", "tomlkit.load",
    "tomlkit.loads", "tomlkit.parse", "pickle.load", "pickle.loads", "ElementTree.fromstring", "ElementTree.parse",
    "ElementTree.iterparse",
}  # fmt: skip
_NAMES = re.compile(rf"\b({'|'.join(each.rpartition('.')[2] for each in PARSERS)}|\w*SafeLoader)\b")
OWN, ON_NODE, WORKER = "a text of gpunode's own", "alone on the node, without this package", "an answer of the engine"
CHECKED = "read within the limits first"
LISTED = {
    ("gpunode/agent/bundle.py", "json.loads"): OWN,
    ("gpunode/agent/files.py", "json.loads"): OWN,
    ("gpunode/agent/gate.py", "json.loads"): ON_NODE,
    ("gpunode/agent/pull.py", "json.loads"): ON_NODE,
    ("gpunode/base/tables/__init__.py", "json.loads"): OWN,
    ("gpunode/base/tables/reading.py", "yaml.load"): OWN,
    ("gpunode/base/toml_edit.py", "tomlkit.parse"): CHECKED,
    ("gpunode/base/yaml_edit.py", "yaml.compose"): CHECKED,
    ("gpunode/fleet/call.py", "json.loads"): OWN,
    ("gpunode/fleet/engine/dask_client.py", "json.loads"): OWN,
    ("gpunode/fleet/engine/local.py", "json.loads"): OWN,
    ("gpunode/fleet/engine/local.py", "pickle.load"): OWN,
    ("gpunode/fleet/engine/parts.py", "json.loads"): OWN,
    ("gpunode/fleet/engine/readings.py", "json.loads"): WORKER,
    ("gpunode/fleet/engine/work.py", "json.loads"): OWN,
    ("gpunode/kubernetes/gpushare/manifest.py", "yaml.compose"): CHECKED,
    ("gpunode/kubernetes/helm/session.py", "json.loads"): OWN,
    ("gpunode/packages/families/zypper.py", "ElementTree.fromstring"): "no declarations, and linear in its size",
    ("gpunode/settings/mig_parted/document.py", "yaml.SafeLoader"): "counts values itself, and recurses in Python",
}


def _parsers(path: Path) -> Iterator[str]:
    text = path.read_text()
    for node in ast.walk(ast.parse(text)) if _NAMES.search(text) else ():
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if (name := f"{node.value.id}.{node.attr}") in PARSERS:
                yield name
        elif isinstance(node, ast.ClassDef):
            yield from (name for each in node.bases if (name := ast.unparse(each)).endswith("SafeLoader"))
        elif isinstance(node, ast.ImportFrom):
            yield from (name for each in node.names if (name := f"{node.module}.{each.name}") in PARSERS)


def test_no_other_module_parses_what_others_wrote() -> None:
    found = {(str(path.relative_to(ROOT)), name) for path in SOURCES for name in _parsers(path)}
    assert {each for each in found if each[0] != "gpunode/base/structured_text.py"} == set(LISTED)


def _in_each_other(depth: int) -> str:
    return "[" * depth + "]" * depth


@pytest.mark.parametrize(
    "load, text, line",
    [
        (load_yaml, "[" * 100_000, 1),
        (load_yaml, "a:\n" + "- " * 100_000, 2),
        (load_yaml, "? " * 100_000, 1),
        (load_yaml, _in_each_other(65), 1),
        (load_yaml, hostile_text.aliases(), 5),
        # Each mapping has the one before merged into it.
        (
            load_yaml,
            "a0: &a0 {x: 1}\n" + "".join(f"a{n}: &a{n} {{<<: [*a{n - 1}, *a{n - 1}]}}\n" for n in range(1, 50)),
            14,
        ),
        (load_yaml, "a: &a\n  b: *a", 2),
        (load_yaml, "[" + "1," * (FILE // 2 - 1) + "]", 1),
        (load_yaml, "a: " + "1:1" * 100_000, 1),
        (load_yaml, "a: !!int '" + "1:" * 100_000 + "1'", 1),
        # Each is nested in the one before by an alias.
        (load_yaml, "a0: &a0 [1]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}]\n" for n in range(1, 99)), None),
        (load_yaml, "a: 0x" + "f" * 10_000, None),
        (load_yaml, "{" + "".join(f"{n * (2**61 - 1)}: 1," for n in range(2_000)) + "}", 1),
        (load_yaml, "%TAG !a! tag:" + "x" * 1_000 + "\n---\n- !a!b c", None),
        (load_documents, "a: 1\n...\n%TAG !a! b\n---\n", None),
        (load_yaml, " " * (FILE + 1), None),
        (load_documents, "a: 1\n---\n" + "{a: " * 100_000, 3),
        (load_documents, "---\na: 1\n" * (FILE // 13), 58256),
        (load_toml, hostile_text.DOTTED, 1),
        (load_toml, "[a]\n" + "a." * 900 + "b = 1", None),
        (load_toml, "[a.b.c.d.e.f]\n" * 5_000, 4_001),
        (load_toml, "[" + "a." * 63 + "b]\n" + "".join(f"k{n} = 1\n" for n in range(50_000)), 16_645),
        (load_toml, "[" + "a." * 999 + "b]\nk = '''\n[\n'''\n" + "c = 1\n" * 5_000, 1_050),
        (load_toml, "a = " + "[" * 100_000, None),
        (load_toml, "a = 0x" + "f" * 10_000, None),
        (load_json, "[" * 1_000_000, None),
        (load_json, _in_each_other(66), None),
        (load_json, "1e999999", None),
        (load_json, "[NaN]", None),
        (load_json, "1" * 1_000, None),
        (load_json, " " * (DOCUMENT + 1), None),
    ],
)  # fmt: skip
def test_a_text_that_breaks_a_limit_is_refused_with_its_line(
    load: Callable[[str], Any], text: str, line: int | None
) -> None:
    with pytest.raises(TextLimitError) as raised:
        load(text)
    assert raised.value.line == line and len(str(raised.value)) < 100


@pytest.mark.parametrize(
    "load, text",
    [
        (load_yaml, "a: !!bool x"),
        (load_yaml, "a: !!timestamp x"),
        (load_yaml, "a: !!int ''"),
        (load_yaml, "a: !!python/object/apply:os.system [id]"),
        (load_yaml, "? [a]\n: b"),
        (load_yaml, "a: *b"),
        (load_yaml, "a: \0"),
        (load_yaml, "a: \ud800"),
        (load_yaml, "2024-99-99"),
        (load_yaml, "a: 1\n---\nb: 1"),
        (load_toml, "a = " + "1" * 5_000),
        (load_toml, "a = 1\na = 2"),
        (load_json, "1" * 5_000),
        (load_json, b"\xff"),
        (load_json, ""),
    ],
)
def test_whatever_a_parser_raises_is_one_error(load: Callable[[Any], Any], text: str | bytes) -> None:
    with pytest.raises(TextError):
        load(text)


@pytest.mark.parametrize(
    "load, text, value",
    [
        (load_yaml, "a: &a {b: [1]}\nd: {<<: *a, e: *a}", {"a": {"b": [1]}, "d": {"b": [1], "e": {"b": [1]}}}),
        (load_yaml, "a: 1\na: 2", {"a": 2}),
        (load_yaml, "", None),
        (load_toml, "a.b = 1.5\nc = inf", {"a": {"b": 1.5}, "c": float("inf")}),
        (load_json, b'{"a": 1, "a": [2.5, null, 18446744073709551615]}', {"a": [2.5, None, 2**64 - 1]}),
    ],
)  # fmt: skip
def test_what_is_within_the_limits_is_read_as_before(load: Callable[[Any], Any], text: str | bytes, value: Any) -> None:
    assert load(text) == value


def test_documents_have_their_lines_and_dates_are_text() -> None:
    assert load_documents("a: 2024-01-01\n---\n---\nb: =\n") == [(1, {"a": "2024-01-01"}), (3, None), (4, {"b": "="})]


def test_a_hostile_node_is_its_own_finding_within_the_memory_of_a_reading() -> None:
    done = subprocess.run(
        [sys.executable, "-m", hostile_text.__name__], cwd=ROOT, capture_output=True, text=True, timeout=90, check=False
    )
    found = dict(map(json.loads, done.stdout.splitlines()))
    assert done.returncode == 0, found
    assert found.pop("history: large") == 3
    refused = {"toolkit: dots": "ConfigurationRefused", "dnf5: dots": "ValueError"}
    refused |= dict.fromkeys(("helm: nested", "helm: aliases"), "ParseError")
    assert {name: found.pop(name) for name in refused} == refused
    for name, nodes in found.items():
        component = name.partition(":")[0]
        assert nodes["good"] == component.capitalize(), nodes
        # Of a file of several, or that the kubelet cannot read either, the component tells.
        assert (nodes["hostile"] == nodes["good"]) == (component in ("kubelet", "podman")), nodes
