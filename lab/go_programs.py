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
# Settings of the user's that say how modules are fetched and where they are kept. No other one may change a build.
_KEPT_SETTINGS = (
    "GOAUTH", "GOCACHE", "GOINSECURE", "GOMODCACHE", "GONOPROXY", "GONOSUMDB", "GOPATH", "GOPRIVATE", "GOPROXY", "GOSUMDB",
)  # fmt: skip


@dataclass(frozen=True)
class Group:
    """Programs that are built of one Go module.

    module: the module whose version all of them have
    stamp: the Go variable that holds the version in the programs
    prefix: what upstream's own builds put before the version there
    seconds: how long a build takes on two cores with empty caches
    cgo: whether a C compiler takes part
    linker: more flags for Go's linker
    """

    module: str
    stamp: str
    prefix: str = ""
    seconds: int = 60
    cgo: bool = False
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
    texts = (_go_mod(group), (_FOLDER / group / "go.sum").read_text(encoding="utf-8"), repr(GROUPS[group]))
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:12]


def _remove_unused(folder: Path) -> None:
    """Remove programs that no lab asked for within the last week."""
    for path in folder.iterdir():
        if time.time() - path.stat().st_mtime > _KEPT_SECONDS:
            remove(path)


def _build(group: str, target: Path, report: Report) -> None:
    made, what = GROUPS[group], f"{', '.join(names(group))} {version(group)}"
    go = _go(group, what)
    environment = _environment(go, what)
    _check_version(group, what, environment)
    if made.cgo and shutil.which("gcc") is None:
        raise LabError(
            f"{what} cannot be built: there is no gcc. Run: apt-get install --no-install-recommends gcc libc6-dev"
        )
    report(f"go: building {what} ({_duration(made.seconds)}, once)")
    started = time.monotonic()
    stamped = f"-X {made.stamp}={made.prefix}{version(group)}"
    command = [
        *("nice", "-n", "10", go, "build", "-mod=readonly", "-trimpath", "-buildvcs=false"),
        *("-ldflags", f"-s -w {stamped} {made.linker}".rstrip(), "-o", f"{target}/", *_packages(group)),
    ]  # fmt: skip
    environment |= {"CGO_ENABLED": "1" if made.cgo else "0"}
    done = _run(command, what, environment, _FOLDER / group)
    if done.returncode:
        raise LabError(f"{what} cannot be built: {_reason(done.stderr, environment)}")
    report(f"go: {what} is built, {time.monotonic() - started:.0f} s")


def _duration(seconds: int) -> str:
    return f"{seconds} seconds" if seconds < 90 else f"{round(seconds / 60)} minutes"


def _go(group: str, what: str) -> str:
    found = shutil.which("go", path=os.pathsep.join((os.environ.get("PATH", ""), *_PLACES)))
    if found is None:
        raise LabError(
            f"{what} cannot be built: there is no Go. Install Go {_needed(group)} or newer (https://go.dev/dl) in "
            f"/usr/local/go or on the PATH"
        )
    return found


def _needed(group: str) -> str:
    return _matched(group, r"^go (\S+)$")


def _environment(go: str, what: str) -> dict[str, str]:
    """Return the environment of a build: the user's ways to fetch modules, and nothing else of Go's settings."""
    kept = {
        name: value for name, value in os.environ.items()
        if not name.startswith(("GO", "CGO_")) and name not in ("CC", "CXX", "LDFLAGS", "CFLAGS")
    }  # fmt: skip
    ways = {name: os.environ[name] for name in ("GOENV", *_KEPT_SETTINGS) if name in os.environ}
    done = _run(
        [go, "env", "-json", "GOVERSION", *_KEPT_SETTINGS], what, {**kept, **ways, "GOTOOLCHAIN": "local"}, _FOLDER
    )
    try:
        settings = json.loads(done.stdout)
    except ValueError:
        raise LabError(
            f"{what} cannot be built: {go} env answers nothing that can be read: {_last(done.stderr)}"
        ) from None
    return {
        **kept, **{name: str(value) for name, value in settings.items() if value},
        # A newer Go is never fetched without a word, and no setting of `go env -w` counts.
        "GOENV": "off", "GOTOOLCHAIN": "local", "GOWORK": "off", "GOFLAGS": "", "GO111MODULE": "on",
        # go-nvml calls functions that NVIDIA's header calls deprecated: hundreds of lines that hide a real error.
        "CGO_CFLAGS": "-g -O2 -Wno-deprecated-declarations",
    }  # fmt: skip


def _check_version(group: str, what: str, environment: Mapping[str, str]) -> None:
    found, needed = environment.get("GOVERSION", "").removeprefix("go"), _needed(group)
    if _numbers(found) < _numbers(needed):
        raise LabError(
            f"{what} cannot be built: this machine has Go {found or 'of an unknown version'}, and Go {needed} or newer is "
            f"needed (https://go.dev/dl), in /usr/local/go or first on the PATH"
        )


def _numbers(text: str) -> tuple[int, ...]:
    match = re.match(r"\d+(?:\.\d+)*", text)
    return tuple(int(part) for part in match[0].split(".")) if match else ()


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


# What Go, gcc and the kernel print -> what to do.
_REMEDIES = (
    (r"no space left on device", "there is no room for the build; free some in {caches}"),
    (r"SECURITY ERROR|checksum mismatch", "what was fetched is not what lab/go pins; compare the proxy {proxy} with another one"),
    (r"missing go\.sum entry|updates to go\.(mod|sum) needed", "lab/go is not complete; run `go mod tidy` there"),
    (
        r"dial tcp|i/o timeout|connection re(fused|set)|no such host|server misbehaving|TLS handshake|reading https?://|"
        r"proxyconnect|module lookup disabled",
        "the module proxy {proxy} cannot be reached; set GOPROXY to one that this machine reaches",
    ),
)  # fmt: skip


def _reason(stderr: str, environment: Mapping[str, str]) -> str:
    """Return why a build failed and what to do, with the last line that Go printed of it."""
    for pattern, remedy in _REMEDIES:
        lines = [line for line in stderr.splitlines() if re.search(pattern, line)]
        if lines:
            caches = " or ".join(dict.fromkeys((environment["GOCACHE"], environment["GOMODCACHE"], str(cache_dir()))))
            return f"{remedy.format(proxy=environment.get('GOPROXY', ''), caches=caches)}. Go printed: {lines[-1].strip()[:300]}"
    return f"Go printed: {_last(stderr)}"


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
