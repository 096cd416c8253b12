"""SIMULATED packages of DCGM under NVIDIA's names: host engine, dcgmi and exporter, which ask no GPU.

Real are names, versions' shape, relations, paths, units' names and the variables that the exporter takes.
source: NVIDIA/DCGM at v4.6.0 (cmake/packaging.cmake, dcgmi/Health.cpp), NVIDIA/dcgm-exporter at 4.5.3-4.8.2
"""

from __future__ import annotations

from pathlib import Path

from gpunode.lab.packages.deb import Deb, Payload

# DCGM -> the exporter of its release.
RELEASES = {"4.5.2": "4.8.1", "4.5.3": "4.8.2"}
FORMER = "3.3.9"
_FOLDER = Path(__file__).parent / "dcgm_programs"
_UNIT = """[Unit]
Description=SIMULATED {title} of gpunode's lab
{order}
[Service]
ExecStart={command}
Restart=on-abort

[Install]
WantedBy=multi-user.target
"""
_RELOAD = "#!/bin/sh\nset -e\nif [ -d /run/systemd/system ]; then systemctl daemon-reload; fi\n"
_SCRIPTS = (("postinst", _RELOAD), ("postrm", _RELOAD))


def dcgm_packages() -> list[Deb]:
    """Return DCGM 4 in two releases, each in its parts, with the exporter's; and DCGM 3, which is one package."""
    found = [_former()]
    for version, exporter in RELEASES.items():
        full = f"1:{version}-1"
        found.append(_core("datacenter-gpu-manager-4-core", full, version, conflicts="datacenter-gpu-manager"))
        found += [_part(name, full) for name in ("cuda12", "cuda13", "proprietary")]
        found.append(_exporter(exporter))
    return found


def _former() -> Deb:
    return _core("datacenter-gpu-manager", f"1:{FORMER}", FORMER, conflicts="")


def _core(name: str, full: str, version: str, conflicts: str) -> Deb:
    unit = _UNIT.format(title="DCGM host engine", order="", command="/usr/bin/nv-hostengine -n")
    return Deb(
        name, full, f"DCGM {version}", depends="python3", conflicts=conflicts, scripts=_SCRIPTS,
        files=(
            Payload("usr/bin/dcgmi", _program("dcgmi"), 0o755),
            Payload("usr/bin/nv-hostengine", _program("nv_hostengine"), 0o755),
            Payload("usr/lib/systemd/system/nvidia-dcgm.service", unit.encode()),
        ),
    )  # fmt: skip


def _part(part: str, full: str) -> Deb:
    name = f"datacenter-gpu-manager-4-{part}"
    core = f"datacenter-gpu-manager-4-core (= {full})"
    provides = "" if part == "proprietary" else f"datacenter-gpu-manager-4 (= {full})"
    return Deb(name, full, f"DCGM's part {part}", depends=core, provides=provides)


def _exporter(version: str) -> Deb:
    order = "Wants=nvidia-dcgm.service\nAfter=nvidia-dcgm.service\n"
    counters = "/etc/dcgm-exporter/default-counters.csv"
    unit = _UNIT.format(title="DCGM exporter", order=order, command=f"/usr/bin/dcgm-exporter -f {counters}")
    return Deb(
        "datacenter-gpu-manager-exporter", f"{version}-1", f"DCGM exporter {version}", scripts=_SCRIPTS,
        depends="datacenter-gpu-manager-4-core, python3", conffiles=(counters[1:],),
        files=(
            Payload("usr/bin/dcgm-exporter", _program("dcgm_exporter"), 0o755),
            Payload(counters[1:], b"# SIMULATED: names no field of DCGM's.\n"),
            Payload("lib/systemd/system/nvidia-dcgm-exporter.service", unit.encode()),
        ),
    )  # fmt: skip


def _program(name: str) -> bytes:
    return (_FOLDER / f"{name}.py").read_bytes()
