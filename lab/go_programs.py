"""Build pinned Go programs into the lab's cache: `python -m gpunode.lab.go_programs GROUP...` builds some by hand.

Each group has a folder in lab/go: its go.mod names the packages (`tool`) and all versions, its go.sum their checksums.
"""

from __future__ import annotations

import functools
import hashlib
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from gpunode.lab.cache import cache_dir, complete_or_nothing, locked, mark_used, remove, remove_partial
from gpunode.lab.errors import LabError
from gpunode.lab.go_build import BUILD, SETTINGS, build, module_folder

Report = Callable[[str], None]

_FOLDER = Path(__file__).parent / "go"
_KEPT_SECONDS = 7 * 24 * 3600
_LINKER = "-s -w"


@dataclass(frozen=True)
class Group:
    """Programs that are built of one Go module.

    module: the module whose version all of them have
    stamp: the Go variable that holds the version in the programs; empty where the module sets it itself
    prefix: what upstream's own builds put before the version there
    seconds: how long a build takes on two cores with empty caches
    cgo: whether a C compiler takes part
    tags: Go's build tags, separated by commas
    linker: more flags for Go's linker
    """

    module: str
    stamp: str = ""
    prefix: str = ""
    seconds: int = 60
    cgo: bool = False
    tags: str = ""
    linker: str = ""


# NVIDIA's programs load libnvidia-ml.so.1 when they run. Its functions stay undefined until then.
_TOOLKIT = Group(
    "github.com/NVIDIA/nvidia-container-toolkit",
    "github.com/NVIDIA/nvidia-container-toolkit/internal/info.version",
    cgo=True,
    linker="'-extldflags=-Wl,--export-dynamic -Wl,--unresolved-symbols=ignore-in-object-files -Wl,-z,lazy'",
)
_CONTAINERD = Group(
    "github.com/containerd/containerd/v2",
    "github.com/containerd/containerd/v2/version.Version",
    prefix="v",
    seconds=120,
)
GROUPS: Mapping[str, Group] = {
    "toolkit-1.20.2": _TOOLKIT,
    "toolkit-1.19.1": _TOOLKIT,
    "toolkit-1.17.8": _TOOLKIT,
    "crictl-1.37.0": Group("sigs.k8s.io/cri-tools", "sigs.k8s.io/cri-tools/pkg/version.Version"),
    **dict.fromkeys(("containerd-2.4.2", "containerd-2.3.7", "containerd-2.2.9"), _CONTAINERD),
    "containerd-1.7.35": replace(
        _CONTAINERD,
        module="github.com/containerd/containerd",
        stamp="github.com/containerd/containerd/version.Version",
        tags="no_btrfs",
    ),
    # Without seccomp, whose library Debian would have to have. It runs on every Linux as it is linked statically.
    "runc-1.5.3": Group(
        "github.com/opencontainers/runc",
        cgo=True,
        tags="netgo,osusergo",
        linker="-extldflags=-static",
    ),
}


def programs(group: str, report: Report) -> Path:
    """Return the folder with the group's programs, built once; raise LabError."""
    folder = cache_dir() / "go"
    wanted = folder / f"{group}-{_digest(group)}"
    # A finished group does not wait while another one is built.
    if not wanted.is_dir():
        with locked(cache_dir() / "go.lock"):
            folder.mkdir(exist_ok=True)
            remove_partial(folder)
            if not wanted.is_dir():
                with complete_or_nothing(wanted) as partial:
                    _build(group, partial, report)
                _remove_unused(folder)
    mark_used(wanted)
    return wanted


def sources(group: str) -> Path:
    """Return the folder with the sources of the group's module; raise LabError."""
    return module_folder(f"{GROUPS[group].module}@v{version(group)}", _FOLDER / group)


def names(group: str) -> tuple[str, ...]:
    """Return the names of the group's programs."""
    return tuple(package.rpartition("/")[2] for package in _packages(group))


def version(group: str) -> str:
    """Return the version of the group's programs, without a leading `v`."""
    return _matched(group, rf"^(?:require )?\s*{re.escape(GROUPS[group].module)} v(\S+)")


def _go_mod(group: str) -> str:
    return (_FOLDER / group / "go.mod").read_text(encoding="utf-8")


def _matched(group: str, pattern: str) -> str:
    match = re.search(pattern, _go_mod(group), re.MULTILINE)
    assert match is not None, f"{group}: its go.mod has no {pattern}"
    return match[1]


def _packages(group: str) -> list[str]:
    block = _matched(group, r"^tool ((?:\([^)]*\))|\S+)$")
    return block.strip("()").split()


def _digest(group: str) -> str:
    go_sum = (_FOLDER / group / "go.sum").read_text(encoding="utf-8")
    texts = (_go_mod(group), go_sum, repr(GROUPS[group]), repr((_LINKER, BUILD, SETTINGS)))
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:12]


def _remove_unused(folder: Path) -> None:
    """Remove programs that no lab asked for within the last week."""
    for path in folder.iterdir():
        if time.time() - path.stat().st_mtime > _KEPT_SECONDS:
            remove(path)


def _build(group: str, target: Path, report: Report) -> None:
    made, what = GROUPS[group], f"{', '.join(names(group))} {version(group)}"
    minutes = f"{made.seconds} seconds" if made.seconds < 90 else f"{round(made.seconds / 60)} minutes"
    started = time.monotonic()
    stamp = f"-X {made.stamp}={made.prefix}{version(group)}" if made.stamp else ""
    flags = ["-tags", made.tags, "-ldflags", f"{_LINKER} {stamp} {made.linker}", "-o", f"{target}/", *_packages(group)]
    announced = functools.partial(report, f"go: building {what} ({minutes}, once)")
    build(what, _FOLDER / group, flags, needs_gcc=made.cgo, announce=announced)
    for name in names(group):
        printed = _printed(target / name)
        if version(group) not in printed:
            raise LabError(f"{what} cannot be used: `{name} --version` prints {printed!r:.300}")
    report(f"go: {what} is built, {time.monotonic() - started:.0f} s")


def _printed(program: Path) -> str:
    try:
        done = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        # Without the program's path, which has the version in it.
        return f"nothing ({type(error).__name__})"
    return done.stdout or done.stderr


def main(groups: list[str]) -> int:
    """Build the groups that are named, or all of them; print the folder of each."""
    if unknown := [group for group in groups if group not in GROUPS]:
        print(f"no group {', '.join(unknown)}; there are: {' '.join(GROUPS)}", file=sys.stderr)
        return 2
    failed = False
    for group in groups or GROUPS:
        try:
            print(programs(group, lambda line: print(line, file=sys.stderr, flush=True)), flush=True)
        except (LabError, OSError) as error:
            failed = True
            print(f"{group}: {error}", file=sys.stderr, flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
