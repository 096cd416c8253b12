"""What containers of a test saw of the node's GPUs, and what is wrong where they saw too few or too many."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from gpunode.base.probe_output import decoded, repeated, values
from gpunode.base.reading import ParseError, Reading
from gpunode.components.smoke_driver import Handed, InContainer, driver_notes, driver_problems, parse_in_container
from gpunode.system.smi import parse_list

_LOGS = "look at /var/log/nvidia-container-runtime.log (toolkit.debug = True writes it)"
_RUN = "run deploys/gpu_node.py"
# A toolkit of some years ago ends the start where config.toml forbids the variable; since then the container gets none.
_REFUSAL = "insufficient privileges"


@dataclass(frozen=True)
class Trial(Reading):
    """Hold one container: whether it ran, which devices it could open, which it saw and could not, and what it said.

    driver: what it had of the driver's files.
    """

    ran: bool
    devices: tuple[str, ...] = ()
    denied: tuple[str, ...] = ()
    said: str = ""
    driver: InContainer = field(default_factory=InContainer)


@dataclass(frozen=True)
class Smoke(Reading):
    """Hold a node's test.

    by: docker, crictl or ctr, None where none could start a container; runtime: the runtime that was named, or
    `default` where docker's or containerd's own default was taken; devices: those that a container that asks for all
    GPUs is to see.
    asking: a container that asks for GPUs; silent: one that does not; envvar: an unprivileged one that asks by the
    variable where config.toml forbids that, None where it does not; reloaded: the asking one after
    `systemctl daemon-reload`, None where that was left out. handed: what there is on the node to be handed in.
    """

    by: str | None
    runtime: str | None
    devices: tuple[str, ...]
    asking: Trial | None = None
    silent: Trial | None = None
    envvar: Trial | None = None
    reloaded: Trial | None = None
    handed: Handed = field(default_factory=Handed)

    @property
    def notes(self) -> tuple[str, ...]:
        """Return what was not looked at, each with the reason: no fault, and no proof either."""
        if self.asking is None or not self.asking.ran:
            return ()
        return tuple(driver_notes(self.handed, self.asking.driver))

    @property
    def problems(self) -> tuple[str, ...]:
        """Return what is wrong, each with what to do; none where the node is as it should be."""
        return tuple(self._problems())

    def _problems(self) -> Iterator[str]:
        if self.by is None:
            yield (
                "no container can be started: there is neither a docker with a runtime nvidia nor a containerd and the "
                f"nvidia-container-runtime; {_RUN}"
            )
        elif not self.devices:
            yield f"there is no /dev/nvidia0: no driver is loaded; {_RUN}"
        else:
            yield from self._asking()
            if self.silent is None or not self.silent.ran:
                yield f"a container that asks for no GPU does not run{_words(self.silent)}"
            elif self.silent.devices or self.silent.denied:
                yield (
                    f"a container that asks for no GPU sees {', '.join((*self.silent.devices, *self.silent.denied))}; "
                    "look for an image or a hook that sets NVIDIA_VISIBLE_DEVICES"
                )
            if self.envvar is not None and not self.envvar.ran and _REFUSAL not in self.envvar.said:
                yield f"an unprivileged container that asks by NVIDIA_VISIBLE_DEVICES does not run{_words(self.envvar)}"
            elif self.envvar is not None and self.envvar.devices:
                yield (
                    f"an unprivileged container gets {', '.join(self.envvar.devices)} by NVIDIA_VISIBLE_DEVICES, which "
                    "config.toml forbids; is there a second runtime, or a config.toml elsewhere?"
                )
            yield from self._reloaded()

    def _asking(self) -> Iterator[str]:
        if self.asking is None or not self.asking.ran:
            yield f"a container that asks for all GPUs does not run{_words(self.asking)}; {_LOGS}"
            return
        missing = [device for device in self.devices if device not in (*self.asking.devices, *self.asking.denied)]
        if missing:
            yield f"a container that asks for all GPUs does not see {', '.join(missing)}; {_LOGS}"
        if self.asking.denied:
            yield (
                f"a container may not open {', '.join(self.asking.denied)}; is toolkit.no_cgroups on, or does a "
                "security module forbid it?"
            )
        yield from driver_problems(self.handed, self.asking.driver)

    def _reloaded(self) -> Iterator[str]:
        if self.reloaded is None or self.asking is None:
            return
        lost = [device for device in self.asking.devices if device not in self.reloaded.devices]
        if lost:
            yield (
                f"after `systemctl daemon-reload` a container has lost {', '.join(lost)}: systemd finds devices by "
                f"/dev/char, where a link is missing; set toolkit.device_links = True and {_RUN}, then start the "
                "containers anew"
            )


def _words(trial: Trial | None) -> str:
    return f": {' '.join(trial.said.split())[-400:]}" if trial is not None and trial.said.strip() else ""


def parse_smoke(lines: list[str]) -> Smoke:
    """Parse the probe of facts.smoke.Smoke; raise ParseError where it did not come to its end."""
    found = values(lines)
    if found.get("tested") != "yes":
        raise ParseError("the test of containers did not come to its end")
    return Smoke(
        by=found.get("by"),
        runtime=found.get("runtime"),
        devices=tuple(repeated(lines, "device")),
        **{name: _trial(found, name) for name in ("asking", "silent", "envvar", "reloaded")},
        handed=Handed(
            gpus=parse_list(repeated(lines, "node")),
            is_script=found.get("script") == "yes",
            cuda=found.get("cuda"),
            capabilities=tuple(sorted(filter(None, found.get("capabilities", "").replace(" ", "").split(",")))),
        ),
    )


def _trial(found: dict[str, str], name: str) -> Trial | None:
    if name not in found:
        return None
    said = decoded(found, f"{name}_said") or ""
    # Only lines of our own check count as devices.
    words = [line.split("=", 1) for line in said.splitlines() if line.startswith(("open=/dev/", "denied=/dev/"))]
    return Trial(
        ran=found[name] == "0",
        devices=tuple(path for kind, path in words if kind == "open"),
        denied=tuple(path for kind, path in words if kind == "denied"),
        said=said,
        driver=parse_in_container(said.splitlines()),
    )
