"""The Multi-Process Service: which daemons there shall be and what they are told (`daemon`), and what is (`state`)."""

from gpunode.mps.daemon import Control, Daemon, control_text, daemons
from gpunode.mps.state import Mps, MpsDaemon, parse_mps

__all__ = ["Control", "Daemon", "Mps", "MpsDaemon", "control_text", "daemons", "parse_mps"]
