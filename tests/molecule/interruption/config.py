"""pyinfra's options for an interrupted run: the repository's own, and the fault that $GPUNODE_TEST_FAULT names."""

from pyinfra import config

from gpunode.fleet import hooks
from tests.molecule.interruption import striker

config.TEMP_DIR = "/tmp"

hooks.install()
striker.install()
