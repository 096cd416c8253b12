"""What containers of a test saw of the node's GPUs and of the driver's files, and what is wrong with that.

Without NVIDIA_DRIVER_CAPABILITIES a container gets `utility` (nvidia-smi, libnvidia-ml) and `compute` (libcuda), as far
as supported-driver-capabilities of config.toml lets it; by CDI it gets all of it. Each file is mounted by itself, and
ldconfig makes the names with one number, such as libcuda.so.1.
source: NVIDIA/nvidia-container-toolkit, internal/config/image/capabilities.go, pkg/nvcdi/driver-nvml.go,
cmd/nvidia-cdi-hook/update-ldcache, cmd/nvidia-container-runtime-hook/container_config.go
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from gpunode.base.folding import in_one_line
from gpunode.base.probe_output import decoded, repeated, values
from gpunode.base.reading import ParseError, Reading
from gpunode.system.smi import ListedGpu, parse_list

_LOGS = "look at /var/log/nvidia-container-runtime.log (toolkit.debug = True writes it)"
_RENEW = "run deploys/gpu_node.py, which makes CDI specifications of a former driver or MIG layout anew"
_NONE = "the node itself has no libcuda.so.1: run `gpunode drift`, which tells how it comes back"
_LDCONFIG = "look at nvidia-container-cli.ldconfig in the toolkit's config.toml, which names the program that does it"
_BY = "supported-driver-capabilities in the toolkit's config.toml"
# nvidia-smi's exit codes (NVML's), and the shell's for a program that cannot be started.
_REMEDIES = {
    12: f"the container's library cache does not know libnvidia-ml: {_LDCONFIG}",
    18: f"the files that are handed in are not those of the driver that is loaded: {_RENEW}, or boot the node",
}
_NOT_STARTED = (126, 127)
# As on a node with cgroup v1, from containerd 2.2 on.
_WARNING = re.compile(r'time="[^"]*" level=(info|warning) ')


@dataclass(frozen=True)
class Handed(Reading):
    """Hold what a node has to hand in.

    gpus: what its nvidia-smi lists, none where it has none that answers; is_script: whether that program is a script,
    whose interpreter a container need not have; cuda: the path of its libcuda.so.1; capabilities: those that
    config.toml lets containers have, none where it lets them have all.
    """

    gpus: tuple[ListedGpu, ...] = ()
    is_script: bool = False
    cuda: str | None = None
    capabilities: tuple[str, ...] = ()

    def lets(self, capability: str) -> bool:
        """Say whether a container may have a capability of the driver."""
        return not self.capabilities or bool({"all", capability} & set(self.capabilities))


@dataclass(frozen=True)
class InContainer(Reading):
    """Hold what a container has: each libcuda that is mounted, the name libcuda.so.1 beside it, what nvidia-smi said.

    smi_status is nvidia-smi's exit status, None where the container has none.
    """

    cuda: tuple[str, ...] = ()
    linked: tuple[str, ...] = ()
    smi_status: int | None = None
    smi_said: tuple[str, ...] = ()

    @property
    def gpus(self) -> tuple[ListedGpu, ...]:
        """Return the GPUs that nvidia-smi lists in the container."""
        return parse_list(self.smi_said)


def parse_in_container(lines: Sequence[str]) -> InContainer:
    """Parse what smoke_seen.sh printed in a container; other lines are somebody else's."""

    def of(key: str) -> tuple[str, ...]:
        return tuple(line.partition("=")[2] for line in lines if line.startswith(f"{key}="))

    status = next(iter(of("smi.rc")), "")
    is_number = status.isascii() and status.isdecimal() and len(status) < 4
    return InContainer(of("cuda"), of("linked"), int(status) if is_number else None, of("smi"))


def driver_problems(node: Handed, seen: InContainer) -> Iterator[str]:
    """Yield what a container that asks for all GPUs lacks of the driver, each with what to do."""
    yield from _of_smi(node, seen)
    if seen.cuda and not seen.linked:
        yield f"a container has {seen.cuda[0]}, and no libcuda.so.1 beside it, which programs ask for: {_LDCONFIG}"
    elif not seen.cuda and node.lets("compute"):
        remedy = f"the node has {node.cuda}: {_RENEW}; else {_LOGS}" if node.cuda is not None else _NONE
        yield f"a container that asks for all GPUs has no libcuda, without which no CUDA program starts; {remedy}"


def _of_smi(node: Handed, seen: InContainer) -> Iterator[str]:
    if seen.smi_status is None:
        if node.gpus and node.lets("utility"):
            yield (
                "a container that asks for all GPUs has no nvidia-smi, which the node has, and the toolkit is to hand "
                f"in: {_RENEW}; else {_LOGS}"
            )
        return
    if _is_unknown(node, seen):
        return
    if seen.smi_status:
        said = in_one_line(" ".join(seen.smi_said)) or "it said nothing"
        remedy = _REMEDIES.get(seen.smi_status, _LOGS)
        yield f"`nvidia-smi -L` in a container ends with exit code {seen.smi_status}: {said}; {remedy}"
        return
    listed = {gpu.uuid for gpu in seen.gpus}
    if missing := [gpu.uuid for gpu in node.gpus if gpu.uuid not in listed]:
        yield f"nvidia-smi in a container that asks for all GPUs does not list {', '.join(missing)}; {_LOGS}"
    devices = {uuid for gpu in seen.gpus for _, uuid in gpu.mig}
    # Of a GPU that is missing as a whole it is said.
    known = (gpu for gpu in node.gpus if gpu.uuid in listed)
    if lost := [f"{profile} ({uuid})" for gpu in known for profile, uuid in gpu.mig if uuid not in devices]:
        yield (
            f"nvidia-smi in a container that asks for all GPUs does not list the MIG devices {', '.join(lost)}: "
            f"{_RENEW}; is there a /dev/nvidia-caps on the node?"
        )


def driver_notes(node: Handed, seen: InContainer) -> Iterator[str]:
    """Yield what could not be looked at, and why."""
    if not node.gpus:
        yield "nvidia-smi was not run in a container: the node has none that lists its GPUs"
    elif seen.smi_status is None and not node.lets("utility"):
        yield f"nvidia-smi was not run in a container: {_BY} has no utility, by which the toolkit hands it in"
    elif _is_unknown(node, seen):
        yield "nvidia-smi was not run in a container: on the node it is a script, for which a container needs more"
    if not seen.cuda and not node.lets("compute"):
        yield f"a container has no libcuda: {_BY} has no compute, by which the toolkit hands it in"


def _is_unknown(node: Handed, seen: InContainer) -> bool:
    """Say whether what the container has is no program of NVIDIA's, and needs what the container has not."""
    return node.is_script and seen.smi_status in _NOT_STARTED


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
    """Return what a trial printed, without the warnings that ctr and crictl print in any case."""
    lines = [] if trial is None else [line for line in trial.said.splitlines() if not _WARNING.match(line)]
    text = in_one_line(" ".join(lines))
    return f": {text}" if text else ""


def parse_smoke(lines: list[str]) -> Smoke:
    """Parse the probe of facts.toolkit.Smoke; raise ParseError where it did not come to its end."""
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
