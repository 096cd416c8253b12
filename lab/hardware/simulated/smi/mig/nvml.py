"""NVML's errors: the words that nvidia-smi prints, and its exit codes."""

from __future__ import annotations


class NvmlError(Exception):
    """Say why the driver did nothing."""

    def __init__(self, words: str, exit_code: int) -> None:
        super().__init__(words)
        self.words = words
        self.exit_code = exit_code


def invalid_argument() -> NvmlError:
    """Return the error for a profile or place that the GPU does not have."""
    return NvmlError("Invalid Argument", 2)


def no_permission() -> NvmlError:
    """Return the error for anyone but root."""
    return NvmlError("Insufficient Permissions", 4)


def not_found() -> NvmlError:
    """Return the error for an instance that does not exist."""
    return NvmlError("Not Found", 6)


def in_use() -> NvmlError:
    """Return the error for what somebody holds."""
    return NvmlError("In use by another client", 19)


def insufficient_resources() -> NvmlError:
    """Return the error for an instance that has no room."""
    return NvmlError("Insufficient Resources", 23)


def unknown_error() -> NvmlError:
    """Return the error for which nobody knows a reason."""
    return NvmlError("Unknown Error", 255)
