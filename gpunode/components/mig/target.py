"""What each GPU of a node shall be, from settings and from what it is, and what takes it there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gpunode.base.disruption import Disruption
from gpunode.base.reading import ParseError
from gpunode.components.mig import boot
from gpunode.components.mig.change import Change, Instance, change
from gpunode.components.mig.check import target
from gpunode.components.mig.device_filter import Match, PciId, matches
from gpunode.components.mig.geometry import Geometry, product_geometry
from gpunode.components.mig.goal import wanted_instances
from gpunode.components.mig.placement import Impossible, Placement
from gpunode.components.mig.state import DISABLED, ENABLED, GpuInstance, Mig, MigGpu
from gpunode.settings.mig import MigSettings
from gpunode.settings.mig_parted.declaration import Entry, published, selected
from gpunode.settings.mig_parted.document import DeclarationError
from gpunode.system.pci import PciGpu
from gpunode.system.smi import WITHOUT_VALUE


class TargetError(Exception):
    """Say why nobody can tell what a GPU is to become, or why it cannot."""


class StateNotKnown(TargetError):
    """Say what of a GPU's state could not be read; remedy: what a person does about it."""

    def __init__(
        self, reason: str, remedy: str = "run `nvidia-smi` on the node, and mend what the findings of the driver tell"
    ) -> None:
        super().__init__(reason)
        self.remedy = remedy


@dataclass(frozen=True)
class Target:
    """Hold one GPU as it is, whether MIG shall be on there, and the smallest change of its instances.

    `learns`: where its instances may stand is known once MIG is on, so that this comes first, and they come after it.
    """

    gpu: MigGpu
    enabled: bool
    change: Change
    learns: bool = False

    @property
    def mode(self) -> str:
        """Return MIG mode as nvidia-smi shall call it."""
        return ENABLED if self.enabled else DISABLED

    @property
    def instances(self) -> tuple[Instance, ...]:
        """Return the GPU instances that shall be."""
        return tuple(sorted((*self.change.kept, *self.change.created)))

    @property
    def is_reached(self) -> bool:
        """Say whether the GPU is as it shall be."""
        return (self.gpu.current, self.gpu.pending) == (self.mode, self.mode) and self.change.is_nothing

    @property
    def waits(self) -> bool:
        """Say whether the mode is set, and comes with a reset of the GPU or a boot."""
        return self.gpu.current != self.mode == self.gpu.pending

    @property
    def disruption(self) -> Disruption:
        """Return what the way there costs: what takes nothing from anybody costs nothing."""
        takes = self.gpu.current != self.mode or self.change.destroyed
        return Disruption.reset if takes else Disruption.nothing

    @property
    def record(self) -> str:
        """Return the layout that shall be, as the shell has it."""
        return boot.line(self.gpu.uuid, self.enabled, self.instances)

    @property
    def goal(self) -> str:
        """Return what is asked for, wherever the instances stand: it is the same however the GPU looks now."""
        desired = (each.desired for each in self.instances)
        words = sorted(f"{each.profile}={','.join(map(str, each.compute))}" for each in desired)
        return " ".join([self.gpu.uuid, self.mode, *words])

    @property
    def steps(self) -> str:
        """Return what is to be done, for people: mode, and which instances go, come and stay."""
        parts = [] if self.gpu.current == self.mode else [f"turn MIG {'on' if self.enabled else 'off'}"]
        if self.gpu.current == self.mode != self.gpu.pending:
            parts.append(f"take back the pending MIG mode {self.gpu.pending}")
        for verb, instances in (
            ("destroy", self.change.destroyed),
            ("create", self.change.created),
            ("keep", self.change.kept),
        ):
            if instances:
                parts.append(f"{verb} {' '.join(map(str, instances))}")
        if self.learns:
            parts.append("then see where its instances may stand")
        return ", ".join(parts) or "nothing to do"


def targets(settings: MigSettings, gpus: Sequence[PciGpu], state: Mig) -> tuple[Target, ...]:
    """Return the target of every GPU that an entry is for; raise TargetError."""
    if state.status != "ok":
        raise StateNotKnown(f"nvidia-smi does not tell what is there: {state.status} ({state.message or 'no message'})")
    try:
        return tuple(_targets(settings, tuple(chosen(settings, gpus)), state))
    except DeclarationError as error:
        raise TargetError(f"{error.source}: {error.mistakes[0]}") from None


def _targets(settings: MigSettings, every: Sequence[Chosen], state: Mig) -> Iterator[Target]:
    for each in every:
        entry = each.entry
        gpu = next((gpu for gpu in state.gpus if gpu.pci_address == each.gpu.address), None)
        where = f"GPU {each.index} ({each.gpu.address})"
        by_own_list = each.product is None and settings.file is None
        if by_own_list and gpu is not None and gpu.current not in WITHOUT_VALUE:
            entry = _published_entry(settings.config or "", gpu, where)
        # An entry for boards that this GPU may or may not be one of is acted on by nobody.
        if entry is None or each.match is Match.MAYBE:
            continue
        if gpu is None:
            raise StateNotKnown(f"{where} is not among those that nvidia-smi lists: it is lost, or without driver")
        if _is_left_out(each, entry, gpu, every, state):
            continue
        if gpu.capable or entry.mig_enabled:
            yield _target(entry, gpu, each.product, where)


def _is_left_out(each: Chosen, entry: Entry, gpu: MigGpu, every: Sequence[Chosen], state: Mig) -> bool:
    """Say whether `devices: all` leaves a GPU out: it has no MIG, and another GPU of the same entry has.

    nvidia-mig-parted leaves out each GPU without MIG. An entry that no GPU can follow is an error here, and so is a GPU
    of a product with MIG whose mode cannot be read.
    """
    if entry.devices is not None or each.product is not None or gpu.current not in WITHOUT_VALUE:
        return False
    same = {other.gpu.address for other in every if other.entry is not None and other.entry.path == entry.path}
    return any(other.capable for other in state.gpus if other.pci_address in same)


def _published_entry(config: str, gpu: MigGpu, where: str) -> Entry:
    """Return what a published name means for a GPU of a product in no table, by the GPU's own list of profiles."""
    if config in ("all-disabled", "all-enabled") or not gpu.capable:
        return Entry(f"{config}[0]", (), None, config != "all-disabled", {})
    geometry = _geometry(gpu, None, where)
    if geometry is None:
        raise StateNotKnown(
            f"{where}, {gpu.name}, is in no table of products with MIG, and lists its profiles only with MIG on, so "
            f"that it is not known what {config!r} means for it",
            f"run `nvidia-smi -i {gpu.index} -mig 1` on the node while nothing uses the GPU, and run "
            "deploys/gpu_node.py again; or name a layout for it by mig.file",
        )
    known = {f"all-{spot.name.replace('+', '.')}": {spot.name: spot.maximum} for spot in geometry.spots}
    if config not in known:
        raise TargetError(f"mig.config {config!r} does not exist for {where}, {gpu.name}, which has {', '.join(known)}")
    return Entry(f"{config}[0]", (), None, True, known[config])


def _target(entry: Entry, gpu: MigGpu, product: str | None, where: str) -> Target:
    if not gpu.capable:
        if gpu.current not in WITHOUT_VALUE:
            raise StateNotKnown(f"the MIG mode of {where}, {gpu.name}, cannot be read: {gpu.current or 'none'}")
        raise TargetError(f"{where}, {gpu.name}, has no MIG: its mode is {gpu.current}")
    if gpu.instances is None:
        raise StateNotKnown(f"the instances of {where} cannot be read")
    actual = tuple(map(instance, gpu.instances))
    if not entry.mig_enabled or not entry.mig_devices:
        return Target(gpu, entry.mig_enabled, Change((), actual, ()))
    geometry = _geometry(gpu, product, where)
    if geometry is None:
        return Target(gpu, True, Change((), actual, ()), learns=True)
    desired = wanted_instances({spot.name: spot.maximum for spot in geometry.spots}, entry.mig_devices)
    found = desired if isinstance(desired, Impossible) else change(geometry, actual, desired)
    if isinstance(found, Impossible):
        raise TargetError(f"{entry.path} has no place on {where}, {gpu.name}: {found.reason}")
    return Target(gpu, True, found)


def _geometry(gpu: MigGpu, product: str | None, where: str) -> Geometry | None:
    """Return where instances may stand: by the GPU's own list, or by the table; None where only MIG mode will tell."""
    try:
        own = gpu.own_geometry
    except ParseError as error:
        raise StateNotKnown(f"the lists of {where} cannot be understood: {error}") from None
    if own is not None:
        return own
    if gpu.enabled:
        raise StateNotKnown(f"{where} has MIG on, and lists no profiles")
    return product_geometry(product) if product is not None else None


def instance(reading: GpuInstance) -> Instance:
    """Return a GPU instance as the planner has it."""
    sizes = tuple(sorted((each.size for each in reading.compute), reverse=True))
    return Instance(Placement(reading.start, reading.size, reading.profile), sizes, str(reading.id))


@dataclass(frozen=True)
class Chosen:
    """Hold what is asked of one GPU: product (None: in no table), entry (None: there is none), and its index."""

    gpu: PciGpu
    index: int
    product: str | None
    entry: Entry | None
    match: Match = Match.YES


def chosen(settings: MigSettings, gpus: Sequence[PciGpu]) -> Iterator[Chosen]:
    """Yield what each GPU is asked to be, by PCI address as nvidia-mig-parted counts them; raise DeclarationError."""
    declaration = settings.declaration() if settings.file else None
    if declaration is not None:
        selected(declaration, settings.config)
    for index, gpu in enumerate(gpus):
        found = target(f"0x{gpu.device_id}")
        product = found.product if found else None
        named = declaration or (published(product) if product is not None else None)
        entries = named.configs.get(settings.config or "", ()) if named is not None else ()
        board = divmod(int(gpu.subsystem_id, 16), 0x10000) if gpu.subsystem_id else None
        pci = PciId(int(gpu.device_id, 16), int(gpu.vendor, 16), board)
        # Of several entries for a GPU the last one counts.
        entry, match = None, Match.YES
        for each in entries:
            matched = matches(each.device_filter, pci)
            if each.has_index(index) and matched is not Match.NO:
                entry, match = each, matched
        yield Chosen(gpu, index, product, entry, match)
