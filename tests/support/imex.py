"""IMEX on two nodes of one domain, as it is desired, and as the second one is lost."""

from __future__ import annotations

from dataclasses import replace

from gpunode.components.imex.state import Domain, DomainNode, Imex, ImexUnit
from gpunode.settings.imex import ImexSettings
from gpunode.system.pci import PciGpu, PciGpus
from tests.support.verify import GOOD

FIRST, SECOND = "10.0.0.1", "10.0.0.2"
NODES = {"gpu-1": FIRST, "gpu-2": SECOND}
ASKED = ImexSettings(enabled=True, domain="rack1", nodes=NODES)
LIST = f"{FIRST}\n{SECOND}\n"
UP = ImexUnit(active=True, enabled=True)
DOWN = ImexUnit(active=False, enabled=True)
ALL = tuple(DomainNode(each, "READY", ((FIRST, "CONNECTED"), (SECOND, "CONNECTED"))) for each in (FIRST, SECOND))
CONFIG = (("IMEX_NODE_CONFIG_FILE", "/etc/nvidia-imex/nodes_config.cfg"), ("IMEX_CMD_ENABLED", "1"))
RIGHT = Imex(UP, LIST, LIST, CONFIG, Domain("UP", ALL))
LOST = Domain("DEGRADED", (ALL[0], DomainNode(SECOND, "UNAVAILABLE", ((FIRST, "INVALID"), (SECOND, "INVALID")))))
DRIVER = replace(GOOD.driver, packages=(("nvidia-imex", "580.95.05-1"),))
GB200 = PciGpus((PciGpu("0000:08:00.0", "2941", "HGX GB200", "blackwell"),))
NODE = replace(GOOD, pci=GB200, driver=DRIVER, imex=RIGHT)
