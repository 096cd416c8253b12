"""Real containerd programs load what gpunode renders: each file is started before and after.

Tier 2 has Debian's 1.6, 1.7 and 2.1; tier 3 adds 1.7.35, 2.2, 2.3 and 2.4, built with Go.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from itertools import count, product
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from gpunode.base.shell_file import script_file
from gpunode.base.toml_edit import ConfigurationRefused
from gpunode.base.versions import major_minor
from gpunode.components.runtimes.containerd.drop_in import PATH, drop_in, with_import
from gpunode.components.runtimes.containerd.editor import render
from gpunode.components.runtimes.runtime import NVIDIA_RUNTIME, Runtimes
from tests.support.cases import CASES, build
from tests.support.containerd_daemon import CONFIG, PRIVILEGED, RUNC_V1_LINUX, Loaded, LoadedRuntime, load
from tests.support.containerd_files import CRI2, CRI3, FILES, configurations, known_file
from tests.support.containerd_programs import GROUPS, SUITES, Program, programs
from tests.support.generated import EXAMPLES
from tests.support.pairwise import Row, all_rows, pairwise
from tests.support.toml_styles import STYLES, Style

pytestmark = [
    pytest.mark.real, pytest.mark.tier2, pytest.mark.skipif(os.geteuid() != 0, reason="mounts take root"),
]  # fmt: skip
PLUGINS = {1: "cri", 2: CRI2, 3: CRI3, 4: CRI3}
RUNC_V1, RUNC_V2 = "io.containerd.runc.v1", "io.containerd.runc.v2"
_PRIVILEGES = ("privileged", "all_devices")
# The runtime that has the keys -> the default runtime's name.
CARRIERS = {"runc": ("runc", "crun"), "old": ("old", "runc"), "nvidia": ("nvidia", "runc")}
FACTORS: dict[str, tuple[Any, ...]] = {
    "schema": (1, 2, 3, 4),
    "carrier": tuple((name, default) for name, defaults in CARRIERS.items() for default in defaults),
    "type": (RUNC_V1_LINUX, RUNC_V1, RUNC_V2),
    "privileged": ((), (PRIVILEGED,), (PRIVILEGED, f"{PRIVILEGED}_all_devices_allowed")),
    "systemd_cgroup": (False, True),
    "no_pivot": (False, True),
    "engine": ((), ("runtime_engine",), ("runtime_root",), ("runtime_engine", "runtime_root")),
    "way": ("root", "drop-in"),
}


def text(row: Row) -> str:
    """Return the file of a combination."""
    name, default = row["carrier"]
    plugin = f'plugins."{PLUGINS[row["schema"]]}"'
    version = f"version = {row['schema']}\n" if row["schema"] > 1 else ""
    old = "".join(f"{key} = true\n" for key in ("systemd_cgroup",) if row[key])
    pivot = "no_pivot = true\n" if row["no_pivot"] else ""
    carried = "".join(f"{key} = true\n" for key in row["privileged"])
    carried += "".join(f'{key} = "/opt/old/{key}"\n' for key in row["engine"])
    other = f'[{plugin}.containerd.runtimes.crun]\nruntime_type = "{RUNC_V2}"\n' if default == "crun" else ""
    runc = f'[{plugin}.containerd.runtimes.runc]\nruntime_type = "{RUNC_V2}"\n' if name != "runc" else ""
    return (
        f'{version}[{plugin}]\n{old}[{plugin}.containerd]\n{pivot}default_runtime_name = "{default}"\n{other}{runc}'
        f'[{plugin}.containerd.runtimes.{name}]\nruntime_type = "{row["type"]}"\n{carried}'
    )


def is_loaded(row: Row, version: str) -> bool:
    """Return whether the daemon loads the file of a combination, by the rules that its source has."""
    reads = (1, 2) if version.startswith("1.") else (1, 2, 3) if version < "2.3" else (1, 2, 3, 4)
    if row["schema"] not in reads or (row["schema"] == 1 and row["way"] == "drop-in"):
        return False
    # containerd 2 does not know the other keys, and 2.0 to 2.2 ignore the plugins of a file of version 1.
    if version.startswith("2."):
        return row["schema"] != 1 or version >= "2.3"
    default_type = row["type"] if row["carrier"][0] == row["carrier"][1] else RUNC_V2
    return (row["type"] == RUNC_V1_LINUX or not row["engine"]) and (
        default_type == RUNC_V1_LINUX or not (row["systemd_cgroup"] or row["no_pivot"])
    )


def has_no_rendering(row: Row, version: str) -> bool:
    """Return whether no file keeps what a combination has: `no_pivot` of a runtime that is not the default any more."""
    kept = row["carrier"] == ("old", "old") and row["type"] == RUNC_V1_LINUX
    return bool(version.startswith("1.") and row["no_pivot"] and kept)


def differences(file: str, before: Loaded, after: Loaded, version: str, desired: Runtimes) -> Iterator[str]:
    """Yield what a rendered file lost, or has not as desired, in the daemon's own merge."""
    if after.fault:
        yield after.fault
        return
    if after.default != desired.default:
        yield f"the default is {after.default}"
    for name in ("runc", "nvidia") if desired.nvidia else ("runc",):
        if name not in after.runtimes or after.runtimes[name].systemd_cgroup != desired.systemd_cgroup:
            yield f"{name} is {after.runtimes.get(name)}"
    nvidia = after.runtimes.get("nvidia")
    if desired.nvidia and nvidia is not None and nvidia.binary != NVIDIA_RUNTIME:
        yield f"nvidia calls {nvidia.binary}"
    changed = {"runc": {"type", "systemd_cgroup"}, "nvidia": {"type", "systemd_cgroup", "binary", *_PRIVILEGES}}
    # containerd 2 does not read the keys of a runtime of the old type, and cannot start it: they count once it can.
    unread = {"binary", "root", "no_pivot"} if version.startswith("2.") else set()
    judged = set(before.runtimes) - ({"default"} if desired.nvidia else {"default", "nvidia"})
    # The deprecated table of the default is loaded as a runtime of that name, and gpunode takes its place.
    for name, runtime in ((name, each) for name, each in before.runtimes.items() if name in judged):
        ours = changed.get(name, set()) | (unread if runtime.type == RUNC_V1_LINUX and name in changed else set())
        yield from _other_values(name, runtime, after.runtimes.get(name), ours)
    if desired.nvidia and "nvidia" not in before.runtimes:
        types = {
            name: before.runtimes[name].type for name in (before.default, "runc", "crun") if name in before.runtimes
        }
        usable = [name for name, of in types.items() if of in (RUNC_V1_LINUX, RUNC_V1, RUNC_V2)]
        # containerd 2 has a runtime runc of its own, which comes after those of the file.
        base = next((name for name in usable if f"runtimes.{name}" in file), usable[0])
        ours = {"type", "systemd_cgroup", "binary"} | (unread if before.runtimes[base].type == RUNC_V1_LINUX else set())
        yield from _other_values(f"nvidia as {base}", before.runtimes[base], nvidia, ours)
    yield from (line for line in after.warnings if "unknown key" in line and line not in before.warnings)


def _other_values(name: str, before: LoadedRuntime, after: LoadedRuntime | None, ours: Iterable[str]) -> Iterator[str]:
    for key in (field.name for field in fields(before) if field.name not in ours):
        if (value := getattr(after, key, None)) != getattr(before, key):
            yield f"{name}: {key} {getattr(before, key)!r} became {value!r}"


def rendered(file: str | None, version: str, way: str, desired: Runtimes) -> dict[str, str | None]:
    """Return gpunode's files: the root file alone, or it and a drop-in."""
    if way == "root":
        return {CONFIG: render(file, version, desired)}
    root = with_import(file, version)
    return {CONFIG: root, PATH: drop_in(root, version, desired)}


def wrong(program: Program, file: str | None, way: str, desired: Runtimes) -> list[str]:
    """Return what is wrong of a file that the program loads before; one that it does not load is a mistake of ours."""
    before, version = load(program.folder, {CONFIG: file}), program.version
    if before.fault:
        return [f"not loaded before: {before.fault}"]
    try:
        after = load(program.folder, rendered(file, version, way, desired))
    except ConfigurationRefused as error:
        return [f"refused: {error}"]
    return list(differences(file or "", before, after, version, desired))


def all_wrong(jobs: Iterable[tuple[Program, object, str | None, str, Runtimes]]) -> dict[str, list[str]]:
    """Return what is wrong by program and name of the file, of jobs with their file, way and desired runtimes."""
    jobs = list(jobs)
    with ThreadPoolExecutor() as pool:
        found = list(pool.map(lambda job: wrong(job[0], *job[2:]), jobs))
    return {f"{job[0].version} {job[1]}": lines for job, lines in zip(jobs, found, strict=True) if lines}


def _check(choose: Callable[..., list[Row]], some: tuple[Program, ...], **fewer: Any) -> int:
    """Start the programs with the chosen combinations; return how many these are."""
    rows = choose({"program": some, **FACTORS, **fewer}, lambda row: is_loaded(row, row["program"].version))
    found = all_wrong((row["program"], number, text(row), row["way"], Runtimes()) for number, row in enumerate(rows))
    for number, row in enumerate(rows):
        version = row["program"].version
        lines = found.get(f"{version} {number}", [])
        refused = bool(lines) and lines[0].startswith("refused")
        assert refused if has_no_rendering(row, version) else not lines, (version, row, lines)
    return len(rows)


def test_each_two_values_of_the_keys_with_companions_keep_the_cri_plugin() -> None:
    assert _check(pairwise, programs()) <= 60


@pytest.mark.tier3
@pytest.mark.parametrize("release", [*SUITES, *GROUPS])
def test_all_combinations_of_the_keys_with_companions_keep_the_cri_plugin(release: str) -> None:
    fewer: dict[str, Any] = {
        "carrier": (("runc", "runc"), ("runc", "crun"), ("old", "old"), ("nvidia", "runc")),
        "type": (RUNC_V1_LINUX, RUNC_V2),
        "engine": ((), ("runtime_engine", "runtime_root")),
    }
    assert _check(all_rows, programs(release), **fewer)


def _cases(some: tuple[Program, ...]) -> Iterator[tuple[Program, str, str | None, str, Runtimes]]:
    """Yield the cases of the editor, whose results tests/cases holds, with the programs of their release."""
    for file in sorted((CASES / "gpunode.components.runtimes.containerd.editor.render").glob("*.yaml")):
        loaded = yaml.safe_load(file.read_text())
        for number, case in enumerate(loaded if isinstance(loaded, list) else [loaded]):
            given = case["arguments"]
            before, version, desired = given if isinstance(given, list) else given.values()
            for program in some if "returns" in case else ():
                if major_minor(program.version) == major_minor(version):
                    yield program, f"{file.stem} {number}", before, "root", build(Runtimes, desired)


@pytest.mark.parametrize(
    "releases", [tuple(SUITES), pytest.param(GROUPS, marks=pytest.mark.tier3)], ids=["debian", "go"]
)
def test_the_cases_of_the_editor_and_files_that_people_have_become_the_right_ones(releases: tuple[str, ...]) -> None:
    ways = (("root", Runtimes()), ("drop-in", Runtimes("runc", False)))
    files = [
        (program, f"{name} {way}", known_file(name, program.version), way, desired)
        for program, name, (way, desired) in product(programs(*releases), FILES, ways)
    ]
    assert all_wrong(files) == {}
    # Some cases are of files that keep the CRI plugin from loading.
    found = all_wrong(_cases(programs(*releases)))
    assert {name: lines for name, lines in found.items() if not lines[0].startswith("not loaded before")} == {}


# In the CRI plugin's section of a file of version 2.
_RUNC = 'containerd = {runtimes = {runc = {runtime_type = "io.containerd.runc.v2"'
VALIDATED = (
    "max_concurrent_downloads = 3",
    "systemd_cgroup = true",
    'registry = {config_path = "/etc/certs.d", mirrors = {a = {endpoint = ["https://a"]}}}',
    "registry = {config_path = 5}",
    'registry = {auths = {"https://a b" = {username = "x"}}}',
    _RUNC + '}}, default_runtime_name = "nvidia"}',
    _RUNC + f", {PRIVILEGED}_all_devices_allowed = true}}}}}}",
)


def test_the_check_on_the_node_refuses_what_a_start_refuses(tmp_path: Path) -> None:
    check = f'binary=$1 checkpoint=$2\n{script_file("containerd")}\ncheck "$3" || exit 9'

    def compared(number: int, program: Program, line: str) -> tuple[str, str, bool, bool]:
        folder, file = tmp_path / str(number), f'version = 2\n[plugins."io.containerd.grpc.v1.cri"]\n{line}\n'
        folder.mkdir()
        (folder / "file").write_text(file)
        done = subprocess.run(
            ["sh", "-c", check, "sh", program.folder / "containerd", folder, folder / "file"], check=False,
            capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        assert "not known" not in done.stderr
        return program.version, line, done.returncode == 9, bool(load(program.folder, {CONFIG: file}).fault)

    with ThreadPoolExecutor() as pool:
        rows = list(pool.map(compared, count(), *zip(*product(programs(), VALIDATED), strict=True)))
    assert [row for row in rows if row[2] != row[3]] == []
    assert {row[2] for row in rows} == {True, False}


@pytest.mark.tier3
@pytest.mark.parametrize("release", [*SUITES, *GROUPS])
def test_a_file_of_any_style_becomes_the_right_one(release: str) -> None:
    (program,) = programs(release)

    @settings(max_examples=min(EXAMPLES, 100), deadline=None)
    @given(configurations(program.version), STYLES, st.sampled_from(["root", "drop-in"]))
    def check(values: tuple[str, dict[str, Any]], style: Style, way: str) -> None:
        lines = wrong(program, style.text(values[1]), way, Runtimes())
        refused = [line for line in lines if line.startswith("refused:")]
        assert not refused or way == "drop-in" or style.dotted < min(style.braces, 9), lines
        assert refused or not lines or lines[0].startswith("not loaded before:"), lines

    check()
