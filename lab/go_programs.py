"""Build pinned Go programs into the lab's cache: `python -m gpunode.lab.go_programs GROUP...` builds some by hand.

Each group has a folder in lab/go: its go.mod names the packages (`tool`) and all versions, its go.sum their checksums.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from gpunode.lab.cache import cache_dir, complete_or_nothing, locked, mark_used, remove, remove_partial
from gpunode.lab.errors import LabError

Report = Callable[[str], None]

_FOLDER = Path(__file__).parent / "go"
# sudo leaves the folder of Go's own archive out of the PATH.
_PLACES = ("/usr/local/go/bin",)
_LONGEST_S = 3600
_KEPT_SECONDS = 7 * 24 * 3600
# The user's settings of how modules are fetched and where they are kept. Nothing else of the user's changes a build.
_KEPT_SETTINGS = (
    *("GOAUTH", "GOCACHE", "GOINSECURE", "GOMODCACHE", "GONOPROXY", "GONOSUMDB", "GOPATH", "GOPRIVATE", "GOPROXY"),
    "GOSUMDB",
)
_FIXED = {
    # No setting of `go env -w` counts, and a newer Go is not fetched silently.
    "GOENV": "off", "GOTOOLCHAIN": "local", "GOWORK": "off", "GO111MODULE": "on",
    # go-nvml calls functions that NVIDIA's header calls deprecated: hundreds of lines that hide a real error.
    "CGO_CFLAGS": "-g -O2 -Wno-deprecated-declarations",
}  # fmt: skip
_BUILD = ("build", "-mod=readonly", "-trimpath", "-buildvcs=false")
_LINKER = "-s -w"
_INSTALL = "Install Go {} or newer (https://go.dev/dl) in /usr/local/go or first on the PATH"


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
GROUPS: Mapping[str, Group] = {
    "toolkit-1.20.2": _TOOLKIT,
    "toolkit-1.19.1": _TOOLKIT,
    "toolkit-1.17.8": _TOOLKIT,
    "crictl-1.37.0": Group("sigs.k8s.io/cri-tools", "sigs.k8s.io/cri-tools/pkg/version.Version"),
    "containerd-2.4.2": Group(
        "github.com/containerd/containerd/v2",
        "github.com/containerd/containerd/v2/version.Version",
        prefix="v",
        seconds=120,
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
    texts = (_go_mod(group), go_sum, repr(GROUPS[group]), repr((_BUILD, _LINKER, _FIXED)))
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:12]


def _remove_unused(folder: Path) -> None:
    """Remove programs that no lab asked for within the last week."""
    for path in folder.iterdir():
        if time.time() - path.stat().st_mtime > _KEPT_SECONDS:
            remove(path)


def _build(group: str, target: Path, report: Report) -> None:
    what = f"{', '.join(names(group))} {version(group)}"
    go = _go(group, what)
    settings = _settings(go, what)
    _check(group, what, settings.pop("GOVERSION", "").removeprefix("go"))
    report(f"go: building {what} ({_duration(GROUPS[group].seconds)}, once)")
    started = time.monotonic()
    environment = _plain_environment() | settings | _FIXED | {"CGO_ENABLED": str(int(GROUPS[group].cgo))}
    command = [
        *("nice", "-n", "10", go, *_BUILD, "-tags", GROUPS[group].tags, "-ldflags", _linker_flags(group)),
        *("-o", f"{target}/", *_packages(group)),
    ]
    done = _run(command, what, environment, _FOLDER / group)
    if done.returncode:
        raise LabError(f"{what} cannot be built: {_reason(done.stderr, settings)}")
    report(f"go: {what} is built, {time.monotonic() - started:.0f} s")


def _linker_flags(group: str) -> str:
    made = GROUPS[group]
    stamp = (f"-X {made.stamp}={made.prefix}{version(group)}",) if made.stamp else ()
    return " ".join((_LINKER, *stamp, made.linker)).strip()


def _go(group: str, what: str) -> str:
    found = shutil.which("go", path=os.pathsep.join((os.environ.get("PATH", ""), *_PLACES)))
    if found is None:
        raise LabError(f"{what} cannot be built: there is no Go. {_INSTALL.format(_needed(group))}")
    return found


def _settings(go: str, what: str) -> dict[str, str]:
    """Return Go's version and the user's settings of how modules are fetched, by name."""
    ways = {name: os.environ[name] for name in ("GOENV", *_KEPT_SETTINGS) if name in os.environ}
    command = [go, "env", "-json", "GOVERSION", *_KEPT_SETTINGS]
    done = _run(command, what, _plain_environment() | ways | {"GOTOOLCHAIN": "local"}, _FOLDER)
    try:
        return {name: str(value) for name, value in json.loads(done.stdout).items() if value}
    except ValueError:
        raise LabError(f"{what} cannot be built: `{go} env` printed no JSON: {_last(done.stderr)}") from None


def _plain_environment() -> dict[str, str]:
    """Return this process's environment without what changes how Go and gcc build."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("GO", "CGO_")) and name not in ("CC", "CXX")
    }


def _check(group: str, what: str, found: str) -> None:
    """Raise LabError where Go is too old, or the C compiler that the group needs is missing."""
    if _numbers(found) < _numbers(_needed(group)):
        raise LabError(
            f"{what} cannot be built: this machine has Go {found or 'of an unknown version'}. "
            f"{_INSTALL.format(_needed(group))}"
        )
    if GROUPS[group].cgo and shutil.which("gcc") is None:
        raise LabError(
            f"{what} cannot be built: there is no gcc. Run: apt-get install --no-install-recommends gcc libc6-dev"
        )


def _needed(group: str) -> str:
    return _matched(group, r"^go (\S+)$")


def _numbers(text: str) -> tuple[int, ...]:
    match = re.match(r"\d+(?:\.\d+)*", text)
    return tuple(int(part) for part in match[0].split(".")) if match else ()


def _duration(seconds: int) -> str:
    return f"{seconds} seconds" if seconds < 90 else f"{round(seconds / 60)} minutes"


def _run(
    command: list[str], what: str, environment: Mapping[str, str], folder: Path
) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command, cwd=folder, env=dict(environment), stdin=subprocess.DEVNULL, capture_output=True, text=True,
            errors="replace", timeout=_LONGEST_S, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LabError(f"{what} cannot be built: {error}") from None


# What Go, gcc and the kernel print -> what it means and what to do.
_REMEDIES = (
    (r"no space left on device", "there is no room for the build; free some in {caches}"),
    (
        r"SECURITY ERROR|checksum mismatch",
        "what {proxy} serves is not what lab/go pins; compare it with another module proxy",
    ),
    (r"missing go\.sum entry|updates to go\.(mod|sum) needed", "lab/go is not complete; run `go mod tidy` there"),
    (
        r"dial tcp|i/o timeout|connection re(fused|set)|no such host|server misbehaving|TLS handshake|proxyconnect|"
        r"reading https?://|module lookup disabled",
        "the module proxy {proxy} cannot be reached; set GOPROXY to one that this machine reaches",
    ),
)


def _reason(printed: str, settings: Mapping[str, str]) -> str:
    """Return why a build failed and what to do, with the last line that Go printed of it."""
    caches = " or ".join(dict.fromkeys((settings["GOCACHE"], settings["GOMODCACHE"], str(cache_dir()))))
    for pattern, remedy in _REMEDIES:
        if lines := [line.strip() for line in printed.splitlines() if re.search(pattern, line)]:
            advice = remedy.format(proxy=settings.get("GOPROXY", "off"), caches=caches)
            return f"{advice}. Go printed: {lines[-1][:300]}"
    return f"Go printed: {_last(printed)}"


def _last(text: str) -> str:
    return " ".join(line.strip() for line in text.splitlines()[-4:] if line.strip())[-600:]


def main(groups: list[str]) -> int:
    """Build the groups that are named, or all of them; print the folder of each."""
    if unknown := [group for group in groups if group not in GROUPS]:
        print(f"no group {', '.join(unknown)}; there are: {' '.join(GROUPS)}", file=sys.stderr)
        return 2
    failed = False
    for group in groups or GROUPS:
        try:
            print(programs(group, lambda line: print(line, file=sys.stderr, flush=True)), flush=True)
        except LabError as error:
            failed = True
            print(f"{group}: {error}", file=sys.stderr, flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
