"""Settings of the Kubernetes cluster that a node belongs to."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import AfterValidator, Field

from gpunode.settings.component import Component, matching
from gpunode.settings.drain import DrainSettings

LOCAL = "@local"
_LABEL = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
DnsLabel = Annotated[str, AfterValidator(matching(_LABEL, "lower-case letters, digits and '-' inside, 63 at most"))]
NodeName = Annotated[
    str, AfterValidator(matching(rf"(?=.{{1,253}}$){_LABEL}(\.{_LABEL})*", "a node's name such as 'gpu-1.example.org'"))
]
# Of a program or file on the machine where helm runs; a tilde would reach it unexpanded.
ProgramPath = Annotated[
    str, AfterValidator(matching(r"/?[A-Za-z0-9._+-]+(/[A-Za-z0-9._+-]+)*", "a program's name, or its path"))
]
AbsolutePath = Annotated[
    str, AfterValidator(matching(r"/([A-Za-z0-9._+@:=,-]+/?)*", "an absolute path, without spaces"))
]
_Runner = Annotated[
    str, AfterValidator(matching(r"@local|[A-Za-z0-9][A-Za-z0-9._-]*", "'@local', or a host's name in the inventory"))
]
_Version = Annotated[
    str, AfterValidator(matching(r"\d{1,2}\.\d{1,3}(\.\d{1,3})?", "a version such as '1.31' or '1.31.4'"))
]
_Context = Annotated[
    str,
    AfterValidator(matching(r"[A-Za-z0-9][A-Za-z0-9._@:/-]{0,252}", "a context's name such as 'admin@cluster'")),
]


class KubernetesSettings(Component):
    """Say of which cluster a node is a part, and how that cluster is reached."""

    summary: ClassVar[str] = (
        "The Kubernetes cluster that a node belongs to. But for `enabled`, `node_name` and `drain` all nodes of a run "
        "must have the same. What the cluster gets is shown by `gpunode cluster`, and brought there at the end of a "
        "run (docs/device-plugin.md); a node is emptied before it is disturbed (docs/how-to/drain.md)."
    )

    enabled: bool = Field(False, description="true: the host is a node of a Kubernetes cluster.")
    node_name: NodeName | None = Field(
        None, description="Its name in the cluster; not given: the host's name in the inventory, in lower case."
    )
    run_on: _Runner = Field(
        LOCAL,
        description="Where helm and kubectl run: `@local`, or a host of the inventory (a control-plane host, by SSH).",
    )
    kubeconfig: AbsolutePath | None = Field(
        None, description="Path of the kubeconfig there; not given: what helm and kubectl find by themselves."
    )
    context: _Context | None = Field(None, description="Context of the kubeconfig; not given: its current one.")
    version: _Version | None = Field(
        None,
        description=(
            "The cluster's version, such as `1.31`: what it cannot have is then refused before it is contacted, and "
            "another one that is found later is an error. Not given: as found."
        ),
    )
    helm: ProgramPath = Field("helm", description="The program helm (3.8 or newer, or 4), as a name or a path.")
    kubectl: ProgramPath = Field("kubectl", description="The program kubectl, as a name or a path.")
    timeout: int = Field(
        300,
        ge=10,
        le=7200,
        description=(
            "Seconds within which a release must be ready, or it is rolled back. helm 4 waits for custom resources "
            "too: with a GPU Operator until its ClusterPolicy is ready, which takes minutes on new nodes."
        ),
    )
    history: int = Field(10, ge=2, le=256, description="How many revisions of a release the cluster keeps.")
    drain: DrainSettings = Field(
        default_factory=lambda: DrainSettings.model_validate({}),
        description="How the node is emptied before it is disturbed.",
    )

    @property
    def drains(self) -> bool:
        """Say whether the node is emptied before it is disturbed."""
        return self.enabled and self.drain.enabled

    def contradictions(self) -> list[tuple[str, str]]:
        """Refuse what its drain refuses."""
        return [(f"drain.{field}", message) for field, message in self.drain.contradictions()]
