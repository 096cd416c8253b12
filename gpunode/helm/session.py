"""A release read, and changed, by whatever runs helm's commands: this machine or a control-plane host."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpunode.helm.change import Act, Reading, ReleaseChange, Step, Wanted
from gpunode.helm.commands import Command, Commands
from gpunode.helm.errors import explained
from gpunode.helm.program import HelmError
from gpunode.helm.release import Revision, StoredRevision, parse_history, parse_list


@dataclass(frozen=True)
class Output:
    """Hold what a command left: exit status, standard output (which may hold secrets), standard error."""

    status: int
    out: str
    err: str


Run = Callable[[Command], Output]


@dataclass(frozen=True)
class Session:
    """Read and change one release."""

    commands: Commands
    run: Run

    def reading(self) -> Reading:
        """Return what the release is; raise HelmError or ParseError. Nothing is changed."""
        plugin = self.commands.plugin
        listed = self._told("helm list", self.commands.listing())
        if parse_list(listed, plugin.release, plugin.namespace) is None:
            return Reading(None)
        release = parse_history(self._told("helm history", self.commands.history()))
        return Reading(release, self._stored(release.good), self._stored(release.undone))

    def wanted(self, values: Mapping[str, Any], chart: str, kubernetes: str, apis: Sequence[str]) -> Wanted:
        """Return what the values make of the chart, for a cluster of that version and with these APIs."""
        manifest = self._told("helm template", self.commands.template(values, kubernetes, apis))
        plugin = self.commands.plugin
        return Wanted(chart, plugin.version, plugin.namespace, manifest)

    def carry_out(self, change: ReleaseChange, values: Mapping[str, Any]) -> None:
        """Do what is to be done, in order, up to the first that fails; raise HelmError with its cause and remedy.

        Raise it, too, for what may not be done; a recovery that comes before that is done all the same.
        """
        for step in change.steps:
            self._told(f"helm {step.act}", self._command(step, values, change.by_hand))
        if change.refused is not None:
            raise HelmError(change.refused)

    def _command(self, step: Step, values: Mapping[str, Any], by_hand: bool) -> Command:
        if step.act is Act.ROLLBACK:
            if step.revision is None:
                raise HelmError("a rollback to no revision")
            return self.commands.rollback(step.revision)
        if step.act is Act.UNINSTALL:
            return self.commands.uninstall()
        return self.commands.upgrade(values, by_hand)

    def _stored(self, revision: Revision | None) -> StoredRevision | None:
        if revision is None:
            return None
        text = self._told("helm get manifest", self.commands.manifest(revision.number))
        return StoredRevision(revision.number, text)

    def _told(self, what: str, command: Command) -> str:
        output = self.run(command)
        if output.status != 0:
            raise HelmError(explained(what, output.err))
        return output.out
