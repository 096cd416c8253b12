"""Questions to a package manager: gpunode's own probes, one after another in one throwaway container."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from gpunode.base.probe_output import checked
from gpunode.lab.toolbox import run_in

_MARK = "=== question "
# Of all questions together, in seconds: dnf takes some for each.
_TIMEOUT = 900


# What curl says, by which dnf, zypper and pacman fetch, where nobody answers.
_SILENT = re.compile(
    r"resolve host|connect to|connection (failed|timed out|refused|reset)|timeout was reached|unreachable",
    re.IGNORECASE,
)


class ManagerFailed(RuntimeError):
    """Say in the package manager's words why it could not be asked."""

    @property
    def is_silence(self) -> bool:
        """Say whether nobody answered; else it was an answer that the package manager does not take."""
        return _SILENT.search(str(self)) is not None


def ask(
    root: Path, work: Path, setup: str, questions: Sequence[str], *, network: bool = False, **variables: str
) -> list[list[str]]:  # fmt: skip
    """Return what each probe printed; raise ManagerFailed where `setup` failed.

    + root: a root filesystem that has the package manager; work: a folder of its own, /work in the container
    + setup: shell text that makes the package manager read its repositories
    + network: whether the repositories are elsewhere; variables: of the shell
    """
    if not questions:
        return []
    text = "".join(f"echo '{_MARK}{number}'\n{probe}\n" for number, probe in enumerate(questions))
    (work / "asked.sh").write_text(f"{setup}\nset +eu\n{text}", encoding="utf-8")
    done = run_in(root, work, "sh -eu /work/asked.sh", timeout=_TIMEOUT, network=network, mounts=True, **variables)
    before, *answers = done.stdout.split(_MARK)
    if len(answers) != len(questions):
        raise ManagerFailed(" ".join((done.stderr or before or done.stdout).split())[:4000])
    return [checked(answer.splitlines()[1:]) for answer in answers]
