"""Go programs are built once into the cache, and a build that fails says what is missing and what to do."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from gpunode.lab import go_build, go_programs
from gpunode.lab.errors import LabError

pytestmark = pytest.mark.pure
GROUP = "crictl-1.37.0"
# Stands for Go: it answers `go env`, notes how it was started, and builds a program that prints the given version.
GO = """#!/bin/sh
if [ "$1" = env ]; then
  printf '{"GOVERSION": "go%s", "GOCACHE": "%s", "GOMODCACHE": "/m", "GOPROXY": "https://proxy.test"}' \\
    "$FAKE_GO" "${FAKE_CACHE-/c}"
  exit
fi
echo "$GOENV|$GOFLAGS|$GOTOOLCHAIN|$GOPROXY|$CGO_ENABLED|$*" >> "$FAKE_LOG"
[ -z "$FAKE_ERROR" ] || { printf '%s\\n' "$FAKE_ERROR" >&2; exit 1; }
while [ "$1" != -o ]; do shift; done
folder=$2; shift 2
for package; do printf '#!/bin/sh\\necho version %s\\n' "$FAKE_VERSION" > "$folder/${package##*/}"; done
chmod 755 "$folder"/*
"""
Machine = Callable[..., Path]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Return what makes this machine one with these programs; it returns the log of builds."""

    def made(*programs: str, **variables: str) -> Path:
        shutil.rmtree(tmp_path / "bin", ignore_errors=True)
        (tmp_path / "bin").mkdir()
        for name in ("sh", "nice", "chmod"):
            (tmp_path / "bin" / name).symlink_to(shutil.which(name, path="/usr/bin:/bin") or name)
        for name in programs:
            (tmp_path / "bin" / name).write_text(GO)
            (tmp_path / "bin" / name).chmod(0o755)
        for name in [name for name in os.environ if name.startswith(("FAKE_", "GO"))]:
            monkeypatch.delenv(name)
        given = {"FAKE_GO": "1.99.1", "FAKE_VERSION": "1.37.0", "FAKE_LOG": str(tmp_path / "log"), **variables}
        for name, value in {**given, "PATH": str(tmp_path / "bin"), "XDG_CACHE_HOME": str(tmp_path)}.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(go_build, "_PLACES", ())
        return tmp_path / "log"

    return made


def test_a_group_is_built_once_whatever_the_user_set_for_go(machine: Machine) -> None:
    lines: list[str] = []
    log = machine("go", GOFLAGS="-mod=vendor", GOTOOLCHAIN="auto", CGO_ENABLED="1")
    folder = go_programs.programs(GROUP, lines.append)
    assert [path.name for path in folder.iterdir()] == ["crictl"]
    assert go_programs.programs(GROUP, lines.append) == folder
    (started,) = log.read_text().splitlines()
    assert started.startswith("off||local|https://proxy.test|0|build -mod=readonly ")
    assert "-X sigs.k8s.io/cri-tools/pkg/version.Version=1.37.0" in started
    assert len(lines) == 2


@pytest.mark.parametrize(
    ("group", "programs", "variables", "named"),
    [
        (GROUP, (), {}, ("1.26.6", "go.dev/dl")),
        (GROUP, ("go",), {"FAKE_GO": "1.24.9"}, ("1.24.9", "1.26.6", "go.dev/dl")),
        ("toolkit-1.20.2", ("go",), {}, ("apt-get install", "gcc libc6-dev")),
        (GROUP, ("go",), {"FAKE_VERSION": "unknown"}, ("crictl --version", "version unknown")),
        (GROUP, ("go",), {"FAKE_ERROR": "x.go:1:1: undefined: y"}, ("x.go:1:1: undefined: y",)),
        # As in a service, without $HOME.
        (GROUP, ("go",), {"FAKE_CACHE": "", "FAKE_ERROR": "no space left on device"}, ("gocache or /m or",)),
        *(
            (GROUP, ("go",), {"FAKE_ERROR": f"go: downloading x v1.0.0\n{printed}\nlast line"}, (printed, *named))
            for printed, named in (
                ('x@v1.0.0: Get "https://p/x/@v/v1.0.0.zip": dial tcp 127.0.0.1:1: connect: connection refused',
                 ("https://proxy.test", "GOPROXY")),
                ("x@v1.0.0: reading https://p/x/@v/v1.0.0.zip: 503 Service Unavailable", ("GOPROXY",)),
                ("module lookup disabled by GOPROXY=off", ("GOPROXY",)),
                ("verifying x@v1.0.0: checksum mismatch", ("https://proxy.test", "lab/go")),
                ("x.go:19:8: missing go.sum entry for module providing package y", ("go mod tidy",)),
                ("x.go:34:2: write /c/cd/cdf1-d: no space left on device", ("/c or /m or",)),
                ("cgo-builtin-prolog:1:10: fatal error: stddef.h: No such file or directory", ("libc6-dev",)),
            )
        ),
    ],
)  # fmt: skip
def test_a_build_that_fails_leaves_nothing_and_names_what_is_missing(
    machine: Machine, group: str, programs: tuple[str, ...], variables: dict[str, str], named: tuple[str, ...]
) -> None:
    log = machine(*programs, **variables)
    with pytest.raises(LabError) as raised:
        go_programs.programs(group, lambda line: None)
    assert [each for each in (group.rpartition("-")[2], *named) if each not in str(raised.value)] == []
    assert list((log.parent / "gpunode" / "go").iterdir()) == []


@pytest.mark.parametrize("group", go_programs.GROUPS)
def test_a_group_s_name_is_the_version_of_its_module_which_go_sum_pins(group: str) -> None:
    version, module = go_programs.version(group), go_programs.GROUPS[group].module
    assert group.endswith(f"-{version}") and len(set(go_programs.names(group))) > 0
    checksums = (Path(go_programs.__file__).parent / "go" / group / "go.sum").read_text()
    assert f"{module} v{version} h1:" in checksums
