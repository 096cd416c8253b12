"""Helpers and data for the tests of ci judgement."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner, Result

from gpunode.cli.ci import ci
from gpunode.fleet import nodes as fleet
from gpunode.settings import Settings
from gpunode.system.readiness import Readiness

CHECKOUT = Path(__file__).parents[2]


READY = Readiness("done", ("status: done",), "running")


def answer(name: str, said: Readiness | str, lasting: bool = False) -> fleet.Answer[Readiness]:
    settings = Settings.model_validate({})
    if isinstance(said, str):
        return fleet.Answer(name, settings, None, said, lasting=lasting)
    return fleet.Answer(name, settings, said, None)


class Machines:
    """Stand in for the machines of a job, and note how many seconds each look at them may take."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, *answers: fleet.Answer[Readiness]) -> None:
        self.inventory = folder / "ci.py"
        self.inventory.write_text(f"machines = {[each.name for each in answers]!r}\n")
        self.junit = folder / "ci.xml"
        self.answers = answers
        self.seconds: list[float] = []
        monkeypatch.chdir(CHECKOUT)
        monkeypatch.setattr(fleet, "read", self.read)

    def read(
        self, *_: Any, seconds: float = fleet.ANSWER_SECONDS, limit: Collection[str] = ()
    ) -> tuple[fleet.Answer[Readiness], ...]:
        self.seconds.append(seconds)
        return tuple(each for each in self.answers if not limit or each.name in limit)

    def ci(self, *options: str) -> Result:
        return CliRunner().invoke(ci, [*options, "--junit", str(self.junit), str(self.inventory)])

    def errors(self) -> dict[str | None, str]:
        """Return machine -> what JUnit says is wrong with it."""
        suites = ElementTree.parse(self.junit).getroot().iter("testsuite")
        return {
            suite.get("name"): f"{error.get('message')}\n{error.text}"
            for suite in suites
            for error in suite.iter("error")
        }
