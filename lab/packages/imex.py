"""The SIMULATED contents of nvidia-imex: both programs, config.cfg with the keys that they read, and the unit."""

from __future__ import annotations

from pathlib import Path

from gpunode.lab.packages.deb import Payload

CONFIG = "etc/nvidia-imex/config.cfg"
_PROGRAM = Path(__file__).parent / "nvidia_imex.py"
# The keys and defaults of the real one, as far as the SIMULATED programs read them.
_CONFIG = b"""# SIMULATED configuration of nvidia-imex, of gpunode's lab.
SERVER_PORT=50000
IMEX_NODE_CONFIG_FILE=/etc/nvidia-imex/nodes_config.cfg
IMEX_CMD_ENABLED=1
IMEX_CMD_PORT=50005
"""
_UNIT = b"""[Unit]
Description=SIMULATED NVIDIA IMEX service of gpunode's lab
After=network-online.target gpunode-lab-hardware.service

[Service]
Type=forking
TimeoutStartSec=60
ExecStart=/usr/bin/nvidia-imex -c /etc/nvidia-imex/config.cfg

[Install]
WantedBy=multi-user.target
"""


def imex_files(version: str) -> tuple[Payload, ...]:
    """Return the files of nvidia-imex of a driver's version; nodes_config.cfg is none, as in the real package."""
    program = _PROGRAM.read_text(encoding="utf-8").replace("@VERSION@", version).encode()
    return (
        Payload("usr/bin/nvidia-imex", program, 0o755),
        Payload("usr/bin/nvidia-imex-ctl", program, 0o755),
        Payload(CONFIG, _CONFIG),
        Payload("lib/systemd/system/nvidia-imex.service", _UNIT),
    )
