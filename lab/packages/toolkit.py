"""Container toolkit packages as NVIDIA's container toolkit repository has them (lab/world/toolkit.yaml)."""

from __future__ import annotations

from pathlib import Path

from gpunode.lab.packages.deb import Deb, Payload
from gpunode.lab.world.deb_row import FIELDS
from gpunode.lab.world.toolkit import cdi_refresh, full_version, lab_versions, toolkit_row

_FOLDER = Path(__file__).parent
_RUNTIME = _FOLDER / "container_runtime.py"
_CTK = _FOLDER / "nvidia-ctk.sh"
# Of itself it makes a CDI specification, by units that lie where the table says.
_REFRESH = ("nvidia-cdi-refresh.service", "nvidia-cdi-refresh.path")
_ENVIRONMENT = "etc/nvidia-container-toolkit/nvidia-cdi-refresh.env"
# From 1.14 no package has it: nvidia-ctk writes it as the package is configured.
_CONFIG_POSTINST = """#!/bin/sh
[ "$1" = configure ] || exit 0
if [ ! -e /{path} ]; then mkdir -p "$(dirname /{path})"; printf '%s' '{text}' > /{path}; fi
"""
# What NVIDIA's own script has nvidia-ctk do, where that is the real one.
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


def packages_of(version: str, programs: Path | None = None) -> list[Deb]:
    """Return the four packages of a version.

    + programs: a folder with NVIDIA's own nvidia-ctk, nvidia-cdi-hook, nvidia-container-runtime and
      nvidia-container-runtime-hook of that version, and its units where it has them, in place of the SIMULATED ones
    """
    library = f"usr/lib/x86_64-linux-gnu/libnvidia-container.so.{version}"
    units, conffiles = _refresh(version, programs)
    if programs is None:
        hook: list[Payload] = []
        base = [
            Payload("usr/bin/nvidia-container-runtime", _of(_RUNTIME, version), 0o755),
            Payload("usr/bin/nvidia-ctk", _of(_CTK, version), 0o755),
        ]
    else:
        hook = [_real(programs, "nvidia-container-runtime-hook")]
        base = [_real(programs, name) for name in ("nvidia-container-runtime", "nvidia-ctk", "nvidia-cdi-hook")]
    return [
        _package("nvidia-container-toolkit", version, "NVIDIA container toolkit", files=tuple(hook)),
        _package(
            "nvidia-container-toolkit-base",
            version,
            "NVIDIA container toolkit: runtime and nvidia-ctk",
            files=(*base, *units),
            scripts=_scripts(version, programs),
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


def _of(program: Path, version: str) -> bytes:
    return program.read_bytes().replace(b"@VERSION@", version.encode())


def _real(programs: Path, name: str) -> Payload:
    return Payload(f"usr/bin/{name}", (programs / name).read_bytes(), 0o755)


def _scripts(version: str, programs: Path | None) -> tuple[tuple[str, str], ...]:
    refresh = cdi_refresh(version)
    removed = ""
    if refresh is not None and not refresh.folder.startswith("/etc/"):
        removed = _REMOVED.format(first=version, package="nvidia-container-toolkit-base")
    text = _CONFIG_POSTINST if programs is None else _REAL_POSTINST
    configured = text.format(path="etc/nvidia-container-runtime/config.toml", text=_CONFIG)
    configured = configured.replace("#!/bin/sh\n", f"#!/bin/sh\n{removed}")
    if refresh is not None:
        configured += _REFRESH_POSTINST
    others = ("preinst", "postrm") if removed else ()
    return (("postinst", configured), *((name, f"#!/bin/sh\nset -e\n{removed}") for name in others))


def _refresh(version: str, programs: Path | None = None) -> tuple[tuple[Payload, ...], tuple[str, ...]]:
    """Return the files by which a version makes CDI specifications of itself, and which of them are conffiles."""
    refresh = cdi_refresh(version)
    if refresh is None:
        return (), ()
    folder = refresh.folder.lstrip("/")
    given = programs is not None and all((programs / name).is_file() for name in _REFRESH)
    of = programs if programs is not None and given else _FOLDER
    units = tuple(Payload(f"{folder}/{name}", (of / name).read_bytes()) for name in _REFRESH)
    environment = Payload(_ENVIRONMENT, b"# SIMULATED: NVIDIA_CTK_CDI_OUTPUT_FILE_PATH=/var/run/cdi/nvidia.yaml\n")
    return (*units, environment), tuple(path.lstrip("/") for path in refresh.conffiles)


def _package(
    name: str, version: str, description: str, files: tuple[Payload, ...] = (),
    scripts: tuple[tuple[str, str], ...] = (), conffiles: tuple[str, ...] = (),
) -> Deb:  # fmt: skip
    full = full_version(version)
    control = toolkit_row(name, version).control(full)
    relations = {field: control[title] for field, title in FIELDS.items() if title in control}
    return Deb(name, full, description, files=files, scripts=scripts, conffiles=conffiles, **relations)
