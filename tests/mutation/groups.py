"""Which files are mutated, and the tests that belong to each: all that may notice a mutant of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.mutation.mutant import Mutant
from tests.mutation.python_mutants import python_mutants
from tests.mutation.shell_mutants import shell_mutants

CHECKOUT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Group:
    """Hold files that together keep one promise.

    files: path of a file -> names of the tests' files, below tests/unit without test_ and .py
    without: tests' files that are left out, to see what they show
    most: the share of mutants that may survive, in per cent
    """

    name: str
    files: dict[str, str]
    most: float = 5.0
    without: frozenset[str] = frozenset()
    room: Path = field(default=CHECKOUT)

    def tests(self, path: str) -> list[str]:
        """Return the tests' files of a file."""
        return [f"tests/unit/test_{name}.py" for name in self.files[path].split() if name not in self.without]

    def mutants(self) -> Iterator[Mutant]:
        """Yield every mutant; those of shell in Python files are of operations/ alone, where shell is."""
        for path in self.files:
            source = (self.room / path).read_text()
            if path.endswith(".sh") or path.startswith("operations/"):
                yield from shell_mutants(path, source)
            if path.endswith(".py"):
                yield from python_mutants(path, source)


_APT = "guards_trust operations apt_trust"
_RPM = "guards_trust dnf"
_KEY = "guards_trust pinned_key"
_TRANSACTION = "guards_transaction transaction runtime_transaction"
_PARTS = ("", "_unit", "_run", "_undo", "_give_up", "_wait")
# Beside tests/unit/test_preflight.py.
_FOLDER = "gpunode/node/preflight"
_OF_FOLDER = {
    "__init__": "", "anywhere": "check", "boot": "kernel_headers next_boot next_kernel",
    "cuda": "distribution newer_releases", "disk": "", "driver": "distribution apt_archive", "imex": "imex",
    "kubelet": "kubelet", "mig": "mig_preflight", "mps": "mps device_plugin", "platform": "distribution",
    "podman": "podman", "rdma": "rdma",
    "runfile": "runfile", "runtimes": "runtime_packages crio toolkit", "slurm": "slurm",
}  # fmt: skip
_PREFLIGHT = {
    **{f"{_FOLDER}/{name}": tests for name, tests in _OF_FOLDER.items()},
    "gpunode/components/driver/flavour": "newer_releases",
    "gpunode/packages/trust": "distribution pacman",
    "gpunode/base/verdicts": "",
}

GROUPS = (
    Group(
        "trust",
        {
            "gpunode/packages/apt_trust.py": "guards_trust apt_trust",
            "operations/apt_trust.py": "guards_trust apt_trust",
            "templates/scripts/apt_untrust.sh": "guards_trust apt_trust",
            "templates/scripts/keep_beside.sh": "guards_trust apt_trust",
            "templates/scripts/swap.sh": "guards_trust apt_trust",
            "templates/scripts/pinned_key.sh": "pinned_key guards_trust",
            "operations/pinned_key.py": "pinned_key guards_trust",
            "gpunode/packages/keyring.py": "guards_trust",
            "gpunode/packages/keyring.sh": _KEY,
            "gpunode/packages/keyrings.sh": _KEY,
            "operations/repositories.py": _RPM,
            "operations/rpm_repository.py": _RPM,
            "templates/scripts/rpm_trust.sh": _RPM,
            "operations/apt.py": _APT,
            "templates/scripts/apt_trust.sh": _APT,
        },
    ),
    Group(
        "transaction",
        {
            "operations/transaction.py": _TRANSACTION,
            **{f"templates/scripts/transaction{part}.sh": _TRANSACTION for part in _PARTS},
            "gpunode/system/transaction.py": "guards_transaction transaction",
            "templates/scripts/placing.sh": "placing",
            "operations/script.py": "placing guards_transaction",
            "templates/scripts/replace_file.sh": "placing",
            "operations/files.py": "guards_transaction placing operations",
        },
    ),
    Group(
        "deciding",
        {
            "gpunode/components/kubelet/change.py": "kubelet_change cases",
            "gpunode/components/kubelet/decide.py": "kubelet_change cases",
            "gpunode/system/kubelet.py": "kubelet kubelet_change cases",
            "gpunode/components/power/decide.py": "decide_power",
            "gpunode/components/dcgm/decide.py": "dcgm cases",
        },
    ),
    Group(
        "preflight",
        {f"{path}.py": f"guards_preflight preflight {tests}" for path, tests in _PREFLIGHT.items()},
    ),
)
