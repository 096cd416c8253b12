"""A fixture driver put on the disk of a simulated machine, without its packages."""

from __future__ import annotations

from gpunode.lab.hardware.simulated.machine import Machine


def install(machine: Machine, version: str, flavour: str = "open") -> None:
    """Put the fixture module and the library on disk, as the packages do."""
    folder = machine.path(f"/lib/modules/{machine.kernel}/updates/dkms")
    folder.mkdir(parents=True, exist_ok=True)
    license_name = {"open": "Dual MIT/GPL", "proprietary": "NVIDIA"}[flavour]
    for name in ("nvidia", "nvidia-uvm"):
        (folder / f"{name}.ko").write_text(f"version={version}\nlicense={license_name}\nflavour={flavour}\n")
    libraries = machine.path("/usr/lib/x86_64-linux-gnu")
    libraries.mkdir(parents=True, exist_ok=True)
    (libraries / f"libnvidia-ml.so.{version}").touch()
    link = libraries / "libnvidia-ml.so.1"
    link.unlink(missing_ok=True)
    link.symlink_to(f"libnvidia-ml.so.{version}")
