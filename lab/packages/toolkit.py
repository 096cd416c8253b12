"""Container toolkit packages under the names of NVIDIA's container toolkit repository."""

from __future__ import annotations

from pathlib import Path

from lab.packages.deb import Deb, Payload

TOOLKIT_VERSIONS = ("1.16.2", "1.17.8", "1.18.0")
_FOLDER = Path(__file__).parent
_RUNTIME = _FOLDER / "container_runtime.py"
_CTK = _FOLDER / "nvidia-ctk.sh"
# From 1.18 the toolkit itself makes a CDI specification.
_REFRESHING = ("1.18.0",)
_REFRESH = ("nvidia-cdi-refresh.service", "nvidia-cdi-refresh.path")
_REFRESH_POSTINST = """#!/bin/sh
[ "$1" = configure ] && [ -d /run/systemd/system ] || exit 0
systemctl daemon-reload
systemctl enable --now nvidia-cdi-refresh.path nvidia-cdi-refresh.service || true
"""
# What older nodes have: it brings docker's configuration, and needs a toolkit.
_DOCKER2 = "2.13.0"
_DAEMON = """{
    "runtimes": {
        "nvidia": {
            "path": "nvidia-container-runtime",
            "runtimeArgs": []
        }
    }
}
"""
_CLI = """#!/bin/sh
# SIMULATED nvidia-container-cli of gpunode's lab.
case "$1" in
    --version|-V)
        echo 'cli-version: {version}'
        echo 'lib-version: {version}' ;;
    *)
        echo "nvidia-container-cli: SIMULATED, knows only --version, not '$*'" >&2; exit 1 ;;
esac
"""
_CONFIG = """#accept-nvidia-visible-devices-as-volume-mounts = false
#accept-nvidia-visible-devices-envvar-when-unprivileged = true
disable-require = false

[nvidia-container-cli]
load-kmods = true

[nvidia-container-runtime]
log-level = "info"
mode = "auto"
runtimes = ["runc"]
"""


def toolkit_packages() -> list[Deb]:
    """Return the four packages of every toolkit version.

    As in NVIDIA's repository only -base is bound to the exact version; the libraries take any newer 1.x, so whoever
    pins the toolkit alone gets newer libraries.
    """
    return [package for version in TOOLKIT_VERSIONS for package in _packages_of(version)]


def legacy_packages() -> list[Deb]:
    """Return what nodes had before: nvidia-docker2 and the runtime as a package of its own."""
    return [
        Deb(
            "nvidia-docker2",
            f"{_DOCKER2}-1",
            "nvidia-docker CLI wrapper",
            depends="nvidia-container-toolkit (>= 1.13.0)",
            files=(
                Payload("usr/bin/nvidia-docker", b'#!/bin/sh\n# SIMULATED nvidia-docker.\nexec docker "$@"\n', 0o755),
                Payload("etc/docker/daemon.json", _DAEMON.encode()),
            ),
            conffiles=("etc/docker/daemon.json",),
        ),
        Deb("nvidia-container-runtime", "3.13.0-1", "Transitional package", depends="nvidia-container-toolkit"),
    ]


def _packages_of(version: str) -> list[Deb]:
    full = f"{version}-1"
    library = f"usr/lib/x86_64-linux-gnu/libnvidia-container.so.{version}"
    config = "etc/nvidia-container-runtime/config.toml"
    refreshes = version in _REFRESHING
    units = tuple(Payload(f"lib/systemd/system/{name}", (_FOLDER / name).read_bytes()) for name in _REFRESH)
    return [
        Deb(
            "nvidia-container-toolkit",
            full,
            "NVIDIA container toolkit",
            depends=f"nvidia-container-toolkit-base (= {full}), {_any_1('libnvidia-container-tools', full)}",
        ),
        Deb(
            "nvidia-container-toolkit-base",
            full,
            "NVIDIA container toolkit: runtime and nvidia-ctk",
            depends="python3",
            files=(
                Payload("usr/bin/nvidia-container-runtime", _RUNTIME.read_bytes(), 0o755),
                Payload("usr/bin/nvidia-ctk", _CTK.read_bytes().replace(b"@VERSION@", version.encode()), 0o755),
                Payload(config, _CONFIG.encode()),
                *(units if refreshes else ()),
            ),
            scripts=(("postinst", _REFRESH_POSTINST),) if refreshes else (),
            conffiles=(config,),
        ),
        Deb(
            "libnvidia-container-tools",
            full,
            "NVIDIA container command-line tool",
            depends=_any_1("libnvidia-container1", full),
            files=(Payload("usr/bin/nvidia-container-cli", _CLI.format(version=version).encode(), 0o755),),
        ),
        Deb(
            "libnvidia-container1",
            full,
            "NVIDIA container library",
            files=(
                Payload(library, f"SIMULATED libnvidia-container {version}\n".encode()),
                Payload("usr/lib/x86_64-linux-gnu/libnvidia-container.so.1", link=Path(library).name),
            ),
        ),
    ]


def _any_1(name: str, at_least: str) -> str:
    return f"{name} (>= {at_least}), {name} (<< 2.0.0)"
