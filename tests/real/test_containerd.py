"""containerd itself reads what gpunode writes: whatever style a file was written in, it means what it is to mean.

    GPUNODE_REAL_CONTAINERD=debian make test-real       # 1.6, 1.7 and 2.1 of Debian bookworm, trixie and sid, by apt
    GPUNODE_REAL_CONTAINERD=DIRECTORY make test-real    # DIRECTORY/NAME/containerd, one folder a release

No daemon is started: `containerd config dump` prints what a file comes to. It is compared with what the same containerd
makes of the plainest file that says what is meant.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpunode.base.toml_edit import BOM, ConfigurationRefused, plain, same
from gpunode.components.runtimes.containerd.drop_in import drop_in, with_import
from gpunode.components.runtimes.containerd.editor import render
from gpunode.components.runtimes.runtime import Runtimes
from tests.real.containerd_programs import VARIABLE, Program, programs
from tests.support.containerd_files import configurations, meant
from tests.support.generated import EXAMPLES
from tests.support.toml_styles import STYLES, Style

if not os.environ.get(VARIABLE):
    pytest.skip(
        f"containerd's own reading is compared where {VARIABLE} is set: debian, or a folder of programs",
        allow_module_level=True,
    )

pytestmark = pytest.mark.real
PROGRAMS = programs()
generated = settings(
    max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow,
    HealthCheck.function_scoped_fixture],
)  # fmt: skip


@pytest.fixture
def count(counted: Callable[[str, Counter[str]], None], request: pytest.FixtureRequest) -> Counter[str]:
    """Return a counter of what was compared; it is told at the end of the run."""
    found: Counter[str] = Counter()
    request.addfinalizer(lambda: counted(request.node.name, found))
    return found


def _read(program: Program, folder: Path, text: str) -> dict[str, Any] | str:
    file = folder / "config.toml"
    file.write_bytes(text.encode())
    return program.reads(file)


def _imports(values: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return what a file says, with nothing of this machine's imported."""
    return {**values, "imports": [f"{folder}/conf.d/*.toml"]} if "imports" in values else values


@pytest.mark.parametrize("name", PROGRAMS)
def test_containerd_reads_what_is_meant_from_a_file_of_any_style(
    name: str, tmp_path: Path, count: Counter[str]
) -> None:
    program = PROGRAMS[name]

    @generated
    @given(
        values=configurations(program.version), style=STYLES, default=st.sampled_from(["nvidia", "runc"]),
        cgroup=st.booleans(), cdi=st.sampled_from([None, True, False]),
    )  # fmt: skip
    def compared(
        values: tuple[str, dict[str, Any]], style: Style, default: str, cgroup: bool, cdi: bool | None
    ) -> None:
        said = _imports(values[1], tmp_path)
        text = style.text(said)
        asked = Runtimes(default, cgroup, cdi=None if name == "1.6" else cdi)
        count["files"] += 1
        # Both parsers agree on what the file says before gpunode touches it, where containerd reads it at all.
        before = _read(program, tmp_path, text)
        if isinstance(before, str):
            assert style.bom and program.version.startswith("2"), (before, text)
            count["unreadable to containerd itself"] += 1
        else:
            assert same(before, _read(program, tmp_path, Style().text(said))), text
        try:
            once = render(text, program.version, asked)
        except ConfigurationRefused:
            assert style.dotted < min(style.braces, 9)
            count["refused"] += 1
            return
        assert render(once, program.version, asked) == once
        wanted = _read(program, tmp_path, Style().text(meant(said, program.version, asked)))
        after = _read(program, tmp_path, once)
        assert isinstance(after, dict), (after, once)
        assert isinstance(wanted, dict) and same(after, wanted), once
        count["edited"] += 1
        # One that says it already, in the same style, stays as it is.
        settled = style.text(meant(said, program.version, asked))
        if isinstance(_read(program, tmp_path, settled), dict):
            assert render(settled, program.version, asked) == settled
            count["left to the byte"] += 1

    compared()
    assert count["left to the byte"] and count["edited"] + count["refused"] == count["files"]


@pytest.mark.parametrize("name", PROGRAMS)
def test_containerd_reads_a_drop_in_beside_a_root_file_of_any_style(
    name: str, tmp_path: Path, count: Counter[str]
) -> None:
    program, beside = PROGRAMS[name], tmp_path / "conf.d" / "99-gpunode.toml"
    beside.parent.mkdir()

    @generated
    @given(values=configurations(program.version), style=STYLES, default=st.sampled_from(["nvidia", "runc"]))
    def compared(values: tuple[str, dict[str, Any]], style: Style, default: str) -> None:
        said, asked = {**values[1]}, Runtimes(default)
        said.pop("disabled_plugins", None)
        said.pop("imports", None)
        root = with_import(style.text(said), program.version, str(beside))
        assert with_import(root, program.version, str(beside)) == root
        beside.write_text(drop_in(root, program.version, asked))
        after = _read(program, tmp_path, root)
        assert isinstance(after, dict), (after, root)
        wanted = _read(program, tmp_path, Style().text(meant(said, program.version, asked)))
        assert isinstance(wanted, dict)
        for each in (after, wanted):
            each.pop("imports", None)
        assert same(after, wanted), f"{root}\n----\n{beside.read_text()}"
        count["root files with a drop-in"] += 1

    compared()
    assert count["root files with a drop-in"]


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_byte_order_mark_stays_only_where_containerd_reads_it(name: str, tmp_path: Path) -> None:
    program, asked = PROGRAMS[name], Runtimes()
    good = render(None, program.version, asked)
    marked = replace(Style(), bom=True).text(plain(good))
    kept = render(marked, program.version, asked)
    assert isinstance(_read(program, tmp_path, kept), dict)
    assert isinstance(_read(program, tmp_path, marked), dict) == (kept == marked) == kept.startswith(BOM)
