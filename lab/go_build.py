"""Go and gcc on this machine: build with them in a fixed way, and say what is missing and how to get it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from gpunode.lab.cache import cache_dir
from gpunode.lab.errors import LabError

# sudo leaves the folder of Go's own archive out of the PATH.
_PLACES = ("/usr/local/go/bin",)
_LONGEST_S = 3600
# The user's settings of how modules are fetched and where they are kept. Nothing else of the user's changes a build.
_KEPT_SETTINGS = (
    *("GOAUTH", "GOCACHE", "GOINSECURE", "GOMODCACHE", "GONOPROXY", "GONOSUMDB", "GOPATH", "GOPRIVATE", "GOPROXY"),
    "GOSUMDB",
)
SETTINGS = {
    # No setting of `go env -w` counts, and a newer Go is not fetched silently.
    "GOENV": "off", "GOTOOLCHAIN": "local", "GOWORK": "off", "GO111MODULE": "on",
    # go-nvml calls functions that NVIDIA's header calls deprecated: hundreds of lines that hide a real error.
    "CGO_CFLAGS": "-g -O2 -Wno-deprecated-declarations",
}  # fmt: skip
BUILD = ("build", "-mod=readonly", "-trimpath", "-buildvcs=false")
_INSTALL = "Install Go {} or newer (https://go.dev/dl) in /usr/local/go or first on the PATH"


def build(what: str, folder: Path, flags: Sequence[str], needs_gcc: bool, announce: Callable[[], None]) -> None:
    """Run `go build` with these flags in the folder of a go.mod; raise LabError.

    what: the programs and their version, for messages
    announce: called once all that is needed is there
    """
    needed = _needed(folder)
    go = _go(what, needed)
    settings = _settings(go, what)
    found = settings.pop("GOVERSION", "").removeprefix("go")
    if _numbers(found) < _numbers(needed):
        raise LabError(
            f"{what} cannot be built: this machine has Go {found or 'of an unknown version'}. {_INSTALL.format(needed)}"
        )
    if needs_gcc and shutil.which("gcc") is None:
        raise LabError(
            f"{what} cannot be built: there is no gcc. Run: apt-get install --no-install-recommends gcc libc6-dev"
        )
    announce()
    environment = _plain_environment() | settings | SETTINGS | {"CGO_ENABLED": str(int(needs_gcc))}
    done = _run(["nice", "-n", "10", go, *BUILD, *flags], what, environment, folder)
    if done.returncode:
        raise LabError(f"{what} cannot be built: {_reason(done.stderr, settings)}")


def module_folder(module: str, folder: Path) -> Path:
    """Return the folder with the sources of `module@version`, which the folder's go.mod requires; raise LabError."""
    go = _go(module, _needed(folder))
    settings = _settings(go, module)
    done = _run([go, "mod", "download", "-json", module], module, _plain_environment() | settings | SETTINGS, folder)
    try:
        return Path(json.loads(done.stdout)["Dir"])
    except (KeyError, TypeError, ValueError):
        raise LabError(f"{module}: its sources cannot be had: {_reason(done.stdout + done.stderr, settings)}") from None


def _needed(folder: Path) -> str:
    """Return the oldest version of Go that the folder's go.mod allows."""
    match = re.search(r"^go (\S+)$", (folder / "go.mod").read_text(encoding="utf-8"), re.MULTILINE)
    assert match is not None, folder
    return match[1]


def _go(what: str, needed: str) -> str:
    found = shutil.which("go", path=os.pathsep.join((os.environ.get("PATH", ""), *_PLACES)))
    if found is None:
        raise LabError(f"{what} cannot be built: there is no Go. {_INSTALL.format(needed)}")
    return found


def _settings(go: str, what: str) -> dict[str, str]:
    """Return Go's version and the user's settings of how modules are fetched, by name."""
    ways = {name: os.environ[name] for name in ("GOENV", *_KEPT_SETTINGS) if name in os.environ}
    command = [go, "env", "-json", "GOVERSION", *_KEPT_SETTINGS]
    done = _run(command, what, _plain_environment() | ways | {"GOTOOLCHAIN": "local"}, cache_dir())
    try:
        found = {name: str(value) for name, value in json.loads(done.stdout).items() if value}
    except (ValueError, AttributeError):
        raise LabError(f"{what} cannot be built: `{go} env` printed no JSON: {_last(done.stderr)}") from None
    return _caches(("GOCACHE", "GOMODCACHE")) | found | _own_caches()


def _own_caches() -> dict[str, str]:
    """Return settings that keep root's files out of another user's caches of Go: sudo keeps that user's home."""
    if os.geteuid() != 0 or Path.home().stat().st_uid == 0:
        return {}
    return _caches(("GOCACHE", "GOMODCACHE", "GOPATH"))


def _caches(names: Sequence[str]) -> dict[str, str]:
    """Return settings that keep Go's files in the lab's cache; without $HOME, as in a service, Go has no place."""
    return {name: str(cache_dir() / name.lower()) for name in names}


def _plain_environment() -> dict[str, str]:
    """Return this process's environment without what changes how Go and gcc build."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("GO", "CGO_")) and name not in ("CC", "CXX")
    }


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


# What Go, gcc and the kernel print -> what it means and what to do.
_REMEDIES = (
    (r"no space left on device", "there is no room for the build; free some in {caches}"),
    (r"checksum mismatch", "what {proxy} serves is not what lab/go pins; compare it with another module proxy"),
    (r"fatal error: \S+\.h: No such file", "gcc has no header files. Run: apt-get install libc6-dev"),
    (r"missing go\.sum entry|updates to go\.(mod|sum) needed", "lab/go is not complete; run `go mod tidy` there"),
    (
        r"dial tcp|i/o timeout|connection re(fused|set)|no such host|server misbehaving|TLS handshake|proxyconnect|"
        r"reading https?://|module lookup disabled",
        "modules cannot be fetched with GOPROXY={proxy}; set it to a module proxy that this machine reaches",
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
