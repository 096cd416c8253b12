"""A node emptied before it is disturbed, and given back once it is well, by whatever runs kubectl."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from gpunode.base.reading import ParseError
from gpunode.kubernetes.drain.commands import Drain, Pod, blocking, parse_budgets, parse_pods
from gpunode.kubernetes.helm.commands import Command
from gpunode.kubernetes.helm.session import Run
from gpunode.kubernetes.nodes.cluster_nodes import ANNOTATION, MANAGER, ClusterNode, Note, parse_node, parse_nodes
from gpunode.kubernetes.nodes.cordon import BLOCKED, DRAINED, DRAINING, FAILED, NOT_READY, lifted, noted, taken

# Others change a node, too: its kubelet tells its state every now and then.
_TRIES = 8
_LOOK = 2.0
_LONGEST = 600
# What kubectl says where it evicts none of a node. source: kubernetes/kubectl, pkg/drain/filters.go
_REFUSED = "cannot delete"


class DrainError(Exception):
    """Say why a node is not emptied or not given back, and what to do."""


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(frozen=True)
class Session:
    """Empty one node and give it back; every method raises DrainError."""

    commands: Drain
    run: Run
    now: Callable[[], str] = _now
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep

    @property
    def node(self) -> str:
        """Return the node's name in the cluster."""
        return self.commands.node

    def cordon(self) -> ClusterNode | None:
        """Return the node's cordon; None where the cluster has no such node."""
        output = self.run(self.commands.reading())
        if output.status != 0 and "(NotFound)" in output.err:
            return None
        if output.status != 0:
            raise DrainError(
                f"the cluster does not tell of node {self.node}: {_words(output.err)}. Remedy: look at "
                "kubernetes.kubeconfig and kubernetes.run_on; without a cluster, set kubernetes.drain.enabled = False"
            )
        try:
            return parse_node(output.out)
        except ParseError as error:
            raise DrainError(f"node {self.node}: {error}") from None

    def held_back(self) -> set[str]:
        """Return the nodes of the cluster that gpunode has cordoned, in whichever run."""
        output = self.run(self.commands.every_node())
        if output.status != 0:
            raise DrainError(f"the cluster does not tell of its nodes: {_words(output.err)}")
        try:
            return {name for name, cordon in parse_nodes(output.out).items() if cordon.is_held_back}
        except ParseError as error:
            raise DrainError(str(error)) from None

    def empty(self, reason: str) -> bool:
        """Cordon the node and evict its pods; return False where the cluster has no such node.

        Where pods are left in the end, the node stays cordoned, and its annotation tells which.
        """
        note = self._taken(reason)
        if note is None:
            return False
        began = self.clock()
        output = self.run(self.commands.drain())
        if output.status != 0 and self._ended(began, output.err):
            output = self.run(self.commands.drain())
        if output.status != 0:
            raise DrainError(self._blocked(note, output.err))
        self._told(self.commands.patch(noted(replace(note, state=DRAINED))))
        return True

    def give_back(self, boot_id: str) -> bool:
        """Lift gpunode's cordon, once the node is Ready in the boot that runs; return whether there was one.

        Where the cordon is somebody else's, what gpunode noted goes, and the cordon stays.
        """
        ended = self.clock() + self.commands.kubernetes.drain.ready_timeout
        for _ in range(_TRIES):
            cordon = self._ready(boot_id, ended)
            patch = None if cordon is None else lifted(cordon)
            if cordon is None or patch is None:
                return False
            if self._changed(patch):
                return cordon.is_held_back
        raise DrainError(self._outrun())

    def failed(self, why: str) -> None:
        """Have the annotation tell why the node stays cordoned, where it is gpunode who cordoned it."""
        cordon = self.cordon()
        if cordon is not None and cordon.note is not None and cordon.note.state in (DRAINING, DRAINED):
            self._told(self.commands.patch(noted(replace(cordon.note, state=FAILED, message=why))))

    def _taken(self, reason: str) -> Note | None:
        for _ in range(_TRIES):
            cordon = self.cordon()
            if cordon is None:
                return None
            note, patch = taken(cordon, reason, self.now())
            if self._changed(patch):
                return note
        raise DrainError(self._outrun())

    def _ready(self, boot_id: str, ended: float) -> ClusterNode | None:
        """Return the node once it is Ready, or at once where there is nothing of ours to lift."""
        while True:
            cordon = self.cordon()
            if cordon is None or cordon.note is None or not cordon.is_held_back or cordon.is_back(boot_id):
                return cordon
            if self.clock() >= ended:
                seconds = self.commands.kubernetes.drain.ready_timeout
                why = f"the node is not Ready in the cluster after {seconds} s"
                self.run(self.commands.patch(noted(replace(cordon.note, state=NOT_READY, message=why))))
                raise DrainError(
                    f"node {self.node} stays cordoned: {why}. Remedy: look at its kubelet (`journalctl -u kubelet`) "
                    f"and at `kubectl describe node {self.node}`, and run again"
                )
            self.sleep(_LOOK)

    def _changed(self, patch: Mapping[str, Any]) -> bool:
        """Make a request; return False where somebody else's came between what was read and this."""
        output = self.run(self.commands.patch(patch))
        if output.status != 0 and "(Conflict)" in output.err:
            return False
        if output.status != 0:
            raise DrainError(self._refused(output.err))
        return True

    def _told(self, command: Command) -> str:
        output = self.run(command)
        if output.status != 0:
            raise DrainError(self._refused(output.err))
        return output.out

    def _blocked(self, note: Note, words: str) -> str:
        """Note what stands in the way, and return it for people."""
        limit = self.commands.kubernetes.drain.timeout
        reasons = self._reasons() or (_words(words),)
        self.run(self.commands.patch(noted(replace(note, state=BLOCKED, message="; ".join(reasons)))))
        listed = "\n".join(f"  {reason}" for reason in reasons)
        back = "" if note.cordon != MANAGER else f". To have it back as it is: kubectl uncordon {self.node}"
        return (
            f"drain blocked: node {self.node} is not empty (kubernetes.drain.timeout is {limit} s):\n{listed}\n"
            f"nothing was changed on the machine, and the node stays cordoned (annotation {ANNOTATION}). Remedy: make "
            f"room for these pods elsewhere, or change what stands in the way, and run again{back}"
        )

    def leaving(self) -> tuple[Pod, ...]:
        """Return the pods that a drain would evict."""
        try:
            return tuple(pod for pod in parse_pods(self._told(self.commands.pods())) if not pod.stays)
        except ParseError as error:
            raise DrainError(f"node {self.node}: {error}") from None

    def _ended(self, began: float, words: str) -> bool:
        """Wait for pods that are told to end already, for which kubectl evicts none; say whether they have ended.

        False where there is none of that kind, or one that nobody has told to end. `words`: kubectl's
        """
        desired, refused = self.commands.kubernetes.drain, _REFUSED in words
        while True:
            try:
                left = self.leaving()
            except DrainError:
                return False
            still = [each for each in left if each.forbids(desired)]
            if not still:
                return refused
            if not all(each.ending for each in still) or self.clock() - began >= desired.timeout:
                return False
            self.sleep(_LOOK)

    def _reasons(self) -> tuple[str, ...]:
        desired = self.commands.kubernetes.drain
        try:
            left, budgets = self.leaving(), self.run(self.commands.budgets())
            return blocking(left, parse_budgets(budgets.out) if budgets.status == 0 else (), desired)
        except (DrainError, ParseError):
            return ()

    def _refused(self, words: str) -> str:
        return (
            f"the cluster refuses a change of node {self.node}: {_words(words)}\nthe user of the kubeconfig needs the "
            "rights of `kubectl drain`: get and patch nodes, list pods, create pods/eviction"
        )

    def _outrun(self) -> str:
        return f"node {self.node} is changed by others again and again: {_TRIES} tries were too late. Remedy: run again"


def _words(text: str) -> str:
    """Return the last of kubectl's errors as one line."""
    lines = [" ".join(line.split()) for line in text.splitlines() if line.strip()]
    told = [line for line in lines if line.lower().startswith("error")] or lines
    return told[-1][:_LONGEST] if told else "kubectl said nothing"
