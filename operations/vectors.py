"""Pods that add vectors on a node's GPUs at the end of a run, one or several at once; they are removed in any case."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic, sleep

from pyinfra import host

from gpunode.base.reading import Unknown
from gpunode.facts.gpu import GpuUsers
from gpunode.kubernetes.device_plugin import vector_add
from gpunode.kubernetes.device_plugin.cluster import Cluster, ClusterError
from gpunode.kubernetes.device_plugin.vector_add import Proof
from gpunode.kubernetes.device_plugin.view import Pod, View
from gpunode.kubernetes.gpushare.decide import APP
from gpunode.kubernetes.objects.runtime_class import NAME
from gpunode.operations.failure import OperationRefused
from gpunode.settings import Settings
from gpunode.settings.cluster import needs_runtime_class

# Seconds between two looks: at one pod; and at several, of which each may be over in a second.
_PAUSE, _SHORT = 2.0, 0.3


@dataclass(frozen=True)
class Vectors:
    """Add vectors on one node of a cluster.

    view: the cluster's, a few seconds old at most; plugin_log: what the plugin's pods said last
    """

    settings: Settings
    cluster: Cluster
    name: str
    namespace: str
    view: Callable[[], View]
    plugin_log: Callable[[], list[str]]

    def add(self, image: str, resources: Mapping[str, int], resource: str | None) -> str:
        """Add vectors by pods that each have one of `resource`, and return what is to be said; raise OperationRefused.

        The pods are removed, and whatever of the kind a run that was cut off left on the node.

        + resources: what the node is to offer, resource -> how many
        + resource: None where it offers none
        """
        count = self.settings.verify.vector_add_pods
        if resource is None:
            return "; it has no GPU to add vectors on"
        if count > resources[resource]:
            offered = ", ".join(f"{name}: {each}" for name, each in sorted(resources.items()))
            raise OperationRefused(
                f"verify.vector_add_pods is {count}, and the node offers {offered}: set it to "
                f"{max(resources.values())} or less, or ask for more replicas by sharing; no pod was started"
            )
        run = secrets.token_hex(4)
        names = [f"gpunode-vector-add-{run}{f'-{number}' if count > 1 else ''}" for number in range(count)]
        proof = Proof(self.namespace, names)
        try:
            self._start(names, image, resource)
            pods = self._awaited(names, proof)
            passed = [name for name in names if self._passed(name, pods.get(name), image, resource)]
        except ClusterError as error:
            raise OperationRefused(str(error)) from None
        finally:
            self._remove(names)
        if not passed:
            return f"; no vectors were added, for no {resource} is free"
        if count == 1:
            return f", and vectors were added on one {resource}"
        missed = f" (for {count - len(passed)} no {resource} was free)" if len(passed) < count else ""
        return f", and {len(passed)} pods added vectors, each on one {resource}{missed}: {proof.said()}"

    def _start(self, names: Sequence[str], image: str, resource: str) -> None:
        by = NAME if needs_runtime_class(self.settings) else None
        labels = APP if self.settings.device_plugin.method == "gpushare" else {}
        content = vector_add.text(*(vector_add.pod(each, self.name, image, resource, by, labels) for each in names))
        words = ("create", "--namespace", self.namespace, "--filename", "-")
        self.cluster.told("kubectl create pod", words, content)

    def _awaited(self, names: Sequence[str], proof: Proof) -> dict[str, Pod]:
        """Return the pods when each has ended, or finds no GPU, or the time is over; look at the node meanwhile."""
        began, look = monotonic(), 0
        while True:
            if len(names) > 1:
                look += 1
                users = host.get_fact(GpuUsers, look=look)
                # What was not seen is told as that, and is no reason to fail.
                if not isinstance(users, Unknown):
                    proof.look(users)
            found = {pod.name: pod for pod in self.view().pods if pod.name in names}
            over = [pod for pod in found.values() if vector_add.has_ended(pod) or vector_add.is_crowded_out(pod)]
            if len(over) == len(names) or monotonic() - began >= self.settings.kubernetes.timeout:
                return found
            sleep(_PAUSE if len(names) == 1 else _SHORT)

    def _passed(self, name: str, pod: Pod | None, image: str, resource: str) -> bool:
        """Say whether a pod passed; False where no GPU was free for it. Raise OperationRefused where it failed."""
        if pod is not None and vector_add.is_crowded_out(pod):
            return False
        printed = self.log(name) if pod is not None else ""
        if pod is not None and pod.phase == "Succeeded" and vector_add.PASSED in printed:
            return True
        what = "nothing became of it" if pod is None else f"{pod.phase} {pod.waits or ''}".strip()
        lines = [f"{name} said: {line}" for line in printed.splitlines()]
        reason = f"the pod that adds vectors by {image} on one {resource} did not pass: {what}"
        raise OperationRefused("\n".join([reason, *lines, *self.plugin_log()]))

    def log(self, name: str) -> str:
        """Return the last lines of a pod's log, else why there are none."""
        try:
            words = ("logs", name, "--namespace", self.namespace, "--all-containers", "--tail", "15")
            return self.cluster.told("kubectl logs", words)
        except ClusterError as error:
            return str(error)

    def _remove(self, names: Sequence[str]) -> None:
        try:
            left = [pod.name for pod in vector_add.of_node(self.view(), self.name)]
        except OperationRefused:
            left = []
        try:
            self.cluster.remove_pods(self.namespace, dict.fromkeys([*names, *left]), "--grace-period=1")
        except ClusterError as error:
            host.log(f"the pods {', '.join(names)} were not removed: {error}")
