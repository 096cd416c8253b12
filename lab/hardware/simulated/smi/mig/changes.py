"""-cgi, -cci, -dgi and -dci: one instance after the other; at the first that fails it ends, and what is done stays."""

from __future__ import annotations

import os

from ..session import Failure, Session
from .instances import GpuInstance, Instances
from .nvml import NvmlError, invalid_argument, no_permission
from .select import chosen, numbers


def create(session: Session, gpus: list[Instances], options: dict[str, str]) -> None:
    """Create GPU instances, with -C each with a compute instance that takes all of it."""
    for gpu in gpus:
        for asked in filter(None, options["cgi"].split(",")):
            try:
                _require_root()
                name, _, place = asked.partition(":")
                # As the real program does: what does not begin with a number is no place, and the driver chooses.
                start = place[: len(place) - len(place.lstrip("0123456789"))]
                instance = gpu.create(gpu.profile(name), int(start) if start else None)
            except NvmlError as error:
                session.say(
                    f"Unable to create a GPU instance on GPU {gpu.gpu.index:>2} using profile {asked}: {error.words}"
                )
                raise _failed("create GPU instances", error) from None
            session.say(
                f"Successfully created GPU instance ID {instance.id:>2} on GPU {gpu.gpu.index:>2} using profile "
                f"MIG {instance.profile.name} (ID {instance.profile.id:>2})"
            )
            if "C" in options:
                _create_compute(session, gpu, instance, "default", "create GPU instances")


def create_compute(session: Session, gpus: list[Instances], options: dict[str, str]) -> None:
    """Create compute instances in the chosen GPU instances; without a profile one that takes all."""
    for gpu, instance in chosen(gpus, options):
        for asked in (options["cci"] or "default").split(","):
            # Each sees what those before it have taken.
            now = next(each for each in gpu if each.id == instance.id)
            _create_compute(session, gpu, now, asked)


def _create_compute(
    session: Session, gpu: Instances, instance: GpuInstance, asked: str, what: str = "create compute instances"
) -> None:
    on = f"GPU {gpu.gpu.index:>2} GPU instance ID {instance.id:>2} using profile"
    try:
        _require_root()
        every = instance.compute_profiles()
        named = {name: size for key, size in every.items() for name in (str(key), instance.compute_name(size))}
        size = named.get(asked, instance.profile.compute if asked == "default" else None)
        if size is None:
            raise invalid_argument()
        made = gpu.create_compute(instance, size)
    except NvmlError as error:
        session.say(f"Unable to create a compute instance on {on} {asked}: {error.words}")
        raise _failed(what, error) from None
    session.say(
        f"Successfully created compute instance ID {made.id:>2} on {on} "
        f"MIG {instance.compute_name(size)} (ID {made.profile_id:>2})"
    )


def destroy(session: Session, gpus: list[Instances], options: dict[str, str]) -> None:
    """Destroy the chosen GPU instances."""
    for gpu, instance in chosen(gpus, options):
        of = f"GPU instance ID {instance.id:>2} from GPU {gpu.gpu.index:>2}"
        try:
            _require_root()
            gpu.destroy(instance)
        except NvmlError as error:
            session.say(f"Unable to destroy {of}: {error.words}")
            raise _failed("destroy GPU instances", error) from None
        session.say(f"Successfully destroyed {of}")


def destroy_compute(session: Session, gpus: list[Instances], options: dict[str, str]) -> None:
    """Destroy the chosen compute instances."""
    wanted = numbers(options.get("ci"))
    found = [
        (gpu, instance, compute)
        for gpu, instance in chosen(gpus, options)
        for compute in instance.compute
        if wanted is None or compute.id in wanted
    ]
    if not found:
        raise Failure("No compute instances found: Not Found\n", 6)
    for gpu, instance, compute in found:
        of = f"compute instance ID {compute.id:>2} from GPU {gpu.gpu.index:>2} GPU instance ID {instance.id:>2}"
        try:
            _require_root()
            gpu.destroy_compute(instance, compute)
        except NvmlError as error:
            session.say(f"Unable to destroy {of}: {error.words}")
            raise _failed("destroy compute instances", error) from None
        session.say(f"Successfully destroyed {of}")


def _require_root() -> None:
    if os.geteuid() != 0:
        raise no_permission()


def _failed(what: str, error: NvmlError) -> Failure:
    return Failure(f"Failed to {what}: {error.words}\n", error.exit_code)


CHANGES = {"cgi": create, "cci": create_compute, "dgi": destroy, "dci": destroy_compute}
