"""The two phases of a pyinfra run: operations are prepared for every host, and carried out then."""

from __future__ import annotations

from pyinfra.context import ctx_host

from gpunode.base.run_context import Slot


def is_executing() -> bool:
    """Say whether the run's operations are carried out; else they are prepared."""
    current = ctx_host.get()
    return current is not None and current.state is not None and bool(current.state.is_executing)


_image = Slot(bool)


def begin_image() -> None:
    """Note that an image is made of this host, a root directory that no systemd has booted: nothing of it runs."""
    _image.set(ctx_host.get(), True)


def is_image() -> bool:
    """Say whether an image is made of this host: nothing is started or stopped, and there is no systemd to ask."""
    current = ctx_host.get()
    return current is not None and _image.of(current)


def is_unattended() -> bool:
    """Say whether the run shows no plan before it is carried out, and asks nobody (`pyinfra -y`)."""
    current = ctx_host.get()
    return current is not None and current.state is not None and not current.state.should_check_for_changes()
