"""The driver's SIMULATED libraries, as its packages hold them."""

from __future__ import annotations

import functools

from gpunode.lab.hardware.nvml.build import empty_library, library


def library_content(name: str, version: str) -> bytes:
    """Return a library of a version: libnvidia-ml.so answers from the simulated hardware, and every other one is empty.

    The version is text after the end of the library, so that the files of two versions differ.
    """
    return _compiled(name) + f"\nSIMULATED {name.partition('.')[0]} {version}\n".encode()


@functools.cache
def _compiled(name: str) -> bytes:
    return (library() if name == "libnvidia-ml.so" else empty_library(f"{name}.1")).read_bytes()
