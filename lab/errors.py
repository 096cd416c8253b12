"""The one error that the lab raises for a cause that a person can remedy."""

from __future__ import annotations

from gpunode.base.errors import CodedError


class LabError(CodedError):
    """Say what is wrong, where, and what to do; the command line prints it without a traceback."""

    code = "lab.failed"
