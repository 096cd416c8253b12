"""The Multi-Process Service: which daemons shall be (`daemon`), what is (`state`), what a run does to it (`change`)."""

from gpunode.components.mps.daemon import Control, Daemon, control_text, daemons
from gpunode.components.mps.state import Mps, MpsDaemon, parse_mps

__all__ = ["Control", "Daemon", "Mps", "MpsDaemon", "control_text", "daemons", "parse_mps"]
