"""The one error that the lab raises for a cause that a person can remedy."""

from __future__ import annotations

from gpunode.base.errors import CodedError
from gpunode.base.messages import Code


class LabError(CodedError):
    """Say what is wrong, where, and what to do; the command line prints it without a traceback."""

    # gpunode/cli/lab.py declares it: an installed package has no lab.
    code = Code("lab.failed")
