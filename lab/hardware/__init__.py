"""Simulated hardware for lab nodes: what an unpacked base image must hold."""

from gpunode.lab.hardware.image import hardware_digest, install_hardware

__all__ = ["hardware_digest", "install_hardware"]
