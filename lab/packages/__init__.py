"""Fixture packages: small .deb files under NVIDIA's names, built here, holding nothing of NVIDIA's."""

from gpunode.lab.packages.deb import Deb, DebError, Payload, build_deb

__all__ = ["Deb", "DebError", "Payload", "build_deb"]
