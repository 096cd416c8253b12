"""pyinfra's options for this repository, and gpunode's two hooks."""

from pyinfra import config

from gpunode.fleet import hooks

# /tmp/pyinfra-* is asked for once per host and run otherwise.
config.TEMP_DIR = "/tmp"

hooks.install()
