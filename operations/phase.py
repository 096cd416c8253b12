"""The two phases of a pyinfra run: operations are prepared for every host, and carried out then."""

from __future__ import annotations

from weakref import WeakSet

from pyinfra.api import Host
from pyinfra.context import ctx_host

from gpunode.fleet import shared_readings


def is_executing() -> bool:
    """Say whether the run's operations are carried out; else they are prepared."""
    current = ctx_host.get()
    return current is not None and current.state is not None and bool(current.state.is_executing)


_images: WeakSet[Host] = WeakSet()


def begin_image() -> None:
    """Note that an image is made of this host, a root directory that no systemd has booted: nothing of it runs."""
    _images.add(ctx_host.get())


def is_image() -> bool:
    """Say whether an image is made of this host: nothing is started or stopped, and there is no systemd to ask."""
    return ctx_host.get() in _images


def is_unattended() -> bool:
    """Say whether the run shows no plan before it is carried out, and asks nobody (`pyinfra -y`)."""
    current = ctx_host.get()
    return current is not None and current.state is not None and shared_readings.is_unattended(current.state)
