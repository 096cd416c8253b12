"""`python -m tests.hardware [INVENTORY]`: compare, tell, and write docs/hardware.md where the hardware is real.

Without an inventory it is this machine. Nothing of MIG is changed, no setting of a GPU, and no file but the page.
"""

from __future__ import annotations

import base64
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from gpunode.fleet import nodes as fleet  # isort: skip  # Before anything opens a socket.
from gpunode.base.findings import NodeReport
from gpunode.base.probe import Text, shell_text
from gpunode.base.probe_output import checked, decoded, repeated, values
from gpunode.base.reading import Reading
from gpunode.components.mps.plugin import PluginMps, parse_plugin_mps
from gpunode.facts.base import NodeFact, changing_command
from gpunode.facts.node import Node as NodeFacts
from gpunode.fleet.drift import inspect
from gpunode.fleet.inventory import load_inventory
from gpunode.node import Node
from gpunode.system.smi import SMI
from tests.hardware.compared import Comparison, comparisons, of_daemon, of_discovery
from tests.hardware.log import Log, parse_log
from tests.hardware.page import page

_HERE = Path(__file__).parent
PAGE = _HERE.parents[1] / "docs" / "hardware.md"
_END = "</nvidia_smi_log>"
_LEFT_OUT = "left out"
NO_GPU = "test-hardware was left out: no GPU answers here by nvidia-smi (a machine with NVIDIA's driver is needed)"
# Seconds of a machine's own part: a compiler, and two clients.
_LONGEST = 600
# A driver that is there, and nothing else asked for.
_ALONE = {"driver": {"source": "present"}, **{name: {"enabled": False} for name in ("cuda", "toolkit", "containerd")}}


@dataclass(frozen=True)
class Machine(Reading):
    """Hold what NVIDIA's own programs say.

    `log` is None where nvidia-smi is not there, or was not asked; `refused` is what it said in place of a log. `cuda`,
    `mps`, `client` and `discovery` say what became of each (see machine.sh), or why it was left out. `plugin` is what
    gpunode reads of the daemon (None: it was not there), `labels` what GPU feature discovery writes, by sharing.
    """

    log: Log | None = None
    refused: str = ""
    simulated: bool = False
    kernel: str = ""
    cuda: str = ""
    mps: str = ""
    client: str = ""
    discovery: str = ""
    plugin: PluginMps | None = None
    labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @property
    def faults(self) -> tuple[str, ...]:
        """Return what of CUDA and MPS did not go as it should; what was left out is no fault."""
        told = {
            "CUDA client": (self.cuda, "PASSED"),
            "client by MPS": (self.client, "PASSED, by a server, 1 client"),
            "GPU feature discovery": (self.discovery, "asked"),
        }
        wrong = [
            f"{what}: {said}" for what, (said, good) in told.items() if not said.startswith((good, "left out")) and said
        ]
        if self.cuda.startswith("PASSED") and self.mps.replace(".", "").isdecimal() and not self.client:
            wrong.append("client by MPS: nothing became of it")
        mps = self.mps.replace(".", "").isdecimal() or self.mps.startswith("left out") or not self.mps
        return (*wrong, *(() if mps else (f"MPS daemon: {self.mps}",)))


def parse_machine(lines: list[str]) -> Machine:
    """Parse what machine.sh prints; raise ParseError."""
    found = values(lines)
    text = (decoded(found, "log") or "").strip()
    told = {name: found.get(name, "") for name in ("kernel", "cuda", "mps", "client", "discovery")}
    # Behind it nvidia-smi may warn, of an infoROM, say.
    xml, end, _ = text.partition(_END)
    log = parse_log(xml + end) if text.startswith("<?xml") else None
    nothing = "log" not in found or text.startswith("No devices were found")
    refused = "" if log or nothing else (text.splitlines() or ["it said nothing"])[0]
    plugin = decoded(found, "plugin")
    return Machine(
        log, refused, found.get("simulated") == "yes", **told,
        plugin=None if plugin is None else parse_plugin_mps(checked(plugin.splitlines())),
        labels={way: _labels(text) for way, text in (line.split(" ", 1) for line in repeated(lines, "labels"))},
    )  # fmt: skip


def _labels(text: str) -> dict[str, str]:
    lines = base64.b64decode(text).decode(errors="replace").splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line)


def question() -> str:
    """Return gpunode's own question of the plugin's daemons, asked of a folder that has no name yet."""
    return changing_command(shell_text("components/mps/plugin", shared=(SMI,), ROOT="@ROOT@"))


class MachineFact(NodeFact[Machine]):
    """Ask NVIDIA's own programs."""

    probe = Text(
        f"SOURCE={base64.b64encode((_HERE / 'client.c').read_bytes()).decode()}\n"
        f"READING={base64.b64encode(question().encode()).decode()}\n"
        + "\n".join(line for line in (_HERE / "machine.sh").read_text().splitlines() if not line.startswith("#"))
    )
    parse = staticmethod(parse_machine)


@dataclass(frozen=True)
class Look:
    """Hold what was seen of one machine: for the page (empty: there was no GPU to look at), and what is wrong."""

    text: str = ""
    wrong: tuple[str, ...] = ()
    simulated: bool = False


def section(name: str, machine: Machine, log: Log, found: Iterable[Comparison], drift: str, now: datetime) -> str:
    """Return what the page says of one machine, as Markdown."""
    rows = [*found]
    gpus = ", ".join(dict.fromkeys(gpu.name for gpu in log.gpus))
    marked = "SIMULATED: this shows nothing of hardware.\n\n" if machine.simulated else ""
    lines = [f"| {each.what} | {each.by_gpunode} | {each.by_nvidia} | {_agrees(each)} |" for each in rows]
    of_clients = {
        "CUDA client": machine.cuda,
        "MPS daemon": machine.mps,
        "client by MPS": machine.client,
        "GPU feature discovery": machine.discovery,
    }
    told = [f"- {what}: {said}" for what, said in of_clients.items() if said]
    where = "" if name == "@local" else f" ({name})"
    return (
        f"## {len(log.gpus)} × {gpus}, driver {log.driver_version}{where}\n\n{marked}"
        f"{now:%Y-%m-%d}: CUDA {log.cuda_version}, kernel "
        f"{machine.kernel.partition('-')[0]}. {sum(each.agrees for each in rows)} of {len(rows)} facts agree with what "
        "NVIDIA's own programs say or were told.\n\n"
        "| fact | gpunode | NVIDIA's program | |\n|---|---|---|---|\n" + "\n".join(lines) + "\n\n"
        + "\n".join((*told, f"- `gpunode drift` before and after: {drift}")) + "\n"
    )  # fmt: skip


def _agrees(each: Comparison) -> str:
    return "agrees" if each.agrees else "**differs**"


def drifted(before: Iterable[NodeReport], after: Iterable[NodeReport]) -> str:
    """Return `the same` with how many findings, or which came and went."""
    one, other = (
        {(item.component, item.what, item.actual) for each in side for item in each.findings}
        for side in (before, after)
    )
    if one == other:
        return f"the same, {len(one)} findings"
    return "differs: " + ", ".join(sorted(f"{component}: {what} {found}" for component, what, found in one ^ other))


def main(arguments: list[str], to: Path = PAGE) -> int:
    """Look at every machine of the inventory; return 1 where anything differs."""
    with tempfile.TemporaryDirectory() as folder:
        inventory = Path(arguments[0]) if arguments else Path(folder) / "this.py"
        if not arguments:
            inventory.write_text(f"nodes = [('@local', {_ALONE!r})]\n", encoding="utf-8")
        looks = {host.name: _looked_at(inventory, host.name) for host in load_inventory(inventory)}
    for name, look in looks.items():
        print(look.text or (f"{name}: {NO_GPU}" if not look.wrong else ""))
        for each in look.wrong:
            print(f"{name}: {each}", file=sys.stderr)
    if real := [look.text for look in looks.values() if look.text and not look.simulated]:
        to.write_text(page(to.read_text(encoding="utf-8") if to.exists() else "", real), encoding="utf-8")
    return int(any(look.wrong for look in looks.values()))


def _looked_at(inventory: Path, name: str) -> Look:
    (asked,) = fleet.read(inventory, NodeFacts, only=[name])
    before = inspect(inventory, only=[name])
    (answer,) = fleet.read(inventory, MachineFact, only=[name], seconds=_LONGEST)
    machine, node = answer.reading, asked.reading
    if not isinstance(machine, Machine) or not isinstance(node, Node):
        return Look(wrong=(f"no answer: {answer.reason or asked.reason}",))
    if machine.refused:
        return Look(wrong=(f"nvidia-smi -q -x: {machine.refused}",))
    if machine.log is None or not machine.log.gpus:
        return Look()
    found = [*comparisons(node, machine.log), *of_daemon(node, machine.plugin), *of_discovery(node, machine.labels)]
    drift = drifted(before, inspect(inventory, only=[name]))
    text = section(name, machine, machine.log, found, drift, datetime.now(UTC))
    differs = [f"{each.what}: {each.by_gpunode}, not {each.by_nvidia}" for each in found if not each.agrees]
    wrong = (*differs, *machine.faults, *(() if drift.startswith("the same") else (f"drift {drift}",)))
    return Look(text, wrong, machine.simulated)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
