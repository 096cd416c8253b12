"""Container toolkit packages as NVIDIA's container toolkit repository has them (lab/world/toolkit.yaml)."""

from __future__ import annotations

from pathlib import Path

from gpunode.lab.packages.deb import Deb, Payload
from gpunode.lab.world.deb_row import FIELDS
from gpunode.lab.world.toolkit import cdi_refresh, full_version, lab_versions, toolkit_row

_RUNTIME = Path(__file__).parent / "container_runtime.py"
_CTK = """#!/bin/sh
# SIMULATED nvidia-ctk of gpunode's lab: its version, and links in /dev/char.
case "$1 $2" in
    --version*) echo 'NVIDIA Container Toolkit CLI version @VERSION@'; echo 'commit: simulated' ;;
    "system create-dev-char-symlinks")
        mkdir -p /dev/char
        # One program for all devices, and none for a link that exists.
        stat -c '%t %T %n' /dev/nvidia* 2>/dev/null | while read -r major minor device; do
            link="/dev/char/$((0x$major)):$((0x$minor))"
            [ ! -c "$device" ] || [ "$link" -ef "$device" ] || ln -sfn "$device" "$link"
        done
        echo "$(date +%Y-%m-%dT%H:%M:%S) SIMULATED nvidia-ctk: $*" >> /var/log/gpunode-lab.log ;;
    *) echo "nvidia-ctk: SIMULATED, does not know '$*'" >&2; exit 1 ;;
esac
"""
# What keeps a CDI specification current from 1.18 on, below the module's folder `deployments`.
_REFRESH = ("systemd/nvidia-cdi-refresh.service", "systemd/nvidia-cdi-refresh.path")
_ENVIRONMENT = "systemd/nvidia-cdi-refresh.env"
# From 1.14 no package has it: nvidia-ctk writes it as the package is configured.
_CONFIG_POSTINST = """#!/bin/sh
[ "$1" = configure ] || exit 0
if [ ! -e /{path} ]; then mkdir -p "$(dirname /{path})"; printf '%s' '{text}' > /{path}; fi
"""
# NVIDIA's own script runs the same command.
_REAL_POSTINST = """#!/bin/sh
[ "$1" = configure ] || exit 0
/usr/bin/nvidia-ctk --quiet config --config-file=/{path} --in-place
"""
# 1.20 takes away the units that 1.18 and 1.19 had put below /etc, by dpkg's own helper, with which dpkg forgets them.
# Where a script just removed them, a person would seem to have, and an older version would not bring them back.
_REMOVED = """for unit in nvidia-cdi-refresh.service nvidia-cdi-refresh.path; do
  [ -z "${{DPKG_MAINTSCRIPT_NAME:-}}" ] ||
    dpkg-maintscript-helper rm_conffile "/etc/systemd/system/$unit" {first}~ {package} -- "$@"
done
"""
_REFRESH_POSTINST = """[ -d /run/systemd/system ] || exit 0
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
    """Return the four packages of every toolkit version that the lab has, with the relations of the table."""
    return [package for version in lab_versions() for package in packages_of(version)]


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


def packages_of(
    version: str, real: tuple[Path, Path] | None = None, more: tuple[Payload, ...] = ()
) -> list[Deb]:  # fmt: skip
    """Return the four packages of a version.

    + real: where NVIDIA's own programs take the place of the SIMULATED ones: a folder with nvidia-ctk, nvidia-cdi-hook,
      nvidia-container-runtime and nvidia-container-runtime-hook of that version, and the folder `deployments` of
      NVIDIA's module with the systemd units and udev rules that its packages hold
    + more: files that the package with the programs gets as well
    """
    library = f"usr/lib/x86_64-linux-gnu/libnvidia-container.so.{version}"
    hook: list[Payload] = []
    files, scripts, conffiles = _simulated(version)
    if real is not None:
        programs, deployments = real
        hook = [_real(programs, "nvidia-container-runtime-hook")]
        units, conffiles = _refresh(version, deployments)
        names = ("nvidia-container-runtime", "nvidia-ctk", "nvidia-cdi-hook")
        files, scripts = (*(_real(programs, name) for name in names), *units), _real_scripts(version)
    return [
        _package("nvidia-container-toolkit", version, "NVIDIA container toolkit", files=tuple(hook)),
        _package(
            "nvidia-container-toolkit-base",
            version,
            "NVIDIA container toolkit: runtime and nvidia-ctk",
            files=(*files, *more),
            scripts=scripts,
            conffiles=conffiles,
        ),
        _package(
            "libnvidia-container-tools",
            version,
            "NVIDIA container command-line tool",
            files=(Payload("usr/bin/nvidia-container-cli", _CLI.format(version=version).encode(), 0o755),),
        ),
        _package(
            "libnvidia-container1",
            version,
            "NVIDIA container library",
            files=(
                Payload(library, f"SIMULATED libnvidia-container {version}\n".encode()),
                Payload("usr/lib/x86_64-linux-gnu/libnvidia-container.so.1", link=Path(library).name),
            ),
        ),
    ]


def _simulated(version: str) -> tuple[tuple[Payload, ...], tuple[tuple[str, str], ...], tuple[str, ...]]:
    text = _CONFIG_POSTINST.format(path="etc/nvidia-container-runtime/config.toml", text=_CONFIG)
    files = (
        Payload("usr/bin/nvidia-container-runtime", _RUNTIME.read_bytes(), 0o755),
        Payload("usr/bin/nvidia-ctk", _CTK.replace("@VERSION@", version).encode(), 0o755),
    )
    return files, (("postinst", text),), ()


def _real(programs: Path, name: str) -> Payload:
    return Payload(f"usr/bin/{name}", (programs / name).read_bytes(), 0o755)


def _real_scripts(version: str) -> tuple[tuple[str, str], ...]:
    refresh = cdi_refresh(version)
    removed = ""
    if refresh is not None and not refresh.folder.startswith("/etc/"):
        removed = _REMOVED.format(first=version, package="nvidia-container-toolkit-base")
    configured = _REAL_POSTINST.format(path="etc/nvidia-container-runtime/config.toml")
    configured = configured.replace("#!/bin/sh\n", f"#!/bin/sh\n{removed}")
    if refresh is not None:
        configured += _REFRESH_POSTINST
    others = ("preinst", "postrm") if removed else ()
    return (("postinst", configured), *((name, f"#!/bin/sh\nset -e\n{removed}") for name in others))


def _refresh(version: str, deployments: Path) -> tuple[tuple[Payload, ...], tuple[str, ...]]:
    """Return the files by which a version keeps a CDI specification current, and which of them are conffiles."""
    refresh = cdi_refresh(version)
    if refresh is None:
        return (), ()
    places = {name: refresh.folder for name in _REFRESH}
    places |= {_ENVIRONMENT: "/etc/nvidia-container-toolkit", **refresh.more}
    files = (
        Payload(f"{folder.lstrip('/')}/{Path(name).name}", (deployments / name).read_bytes())
        for name, folder in places.items()
    )
    return tuple(files), tuple(path.lstrip("/") for path in refresh.conffiles)


def _package(
    name: str, version: str, description: str, files: tuple[Payload, ...] = (),
    scripts: tuple[tuple[str, str], ...] = (), conffiles: tuple[str, ...] = (),
) -> Deb:  # fmt: skip
    full = full_version(version)
    control = toolkit_row(name, version).control(full)
    relations = {field: control[title] for field, title in FIELDS.items() if title in control}
    return Deb(name, full, description, files=files, scripts=scripts, conffiles=conffiles, **relations)
