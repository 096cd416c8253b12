"""The lab's cluster, and the two helms that the scenario is lived with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpunode.kubernetes.nodes.labels import PRESENT
from gpunode.lab.cluster.cluster import kubeconfig_of
from gpunode.lab.kubernetes_programs import WHEELS, programs
from tests.molecule.cluster.releases import NAME, KeptRelease
from tests.molecule.conftest import ALL, LAB


@pytest.fixture(scope="session")
def kubeconfig() -> Path:
    """Return the kubeconfig of the lab's cluster."""
    found = kubeconfig_of(LAB)
    assert found is not None, f"lab {LAB} has no cluster: gpunode lab up --cluster"
    return found


# make test lives with helm 4 here, and with helm 3 in test_2_sharing.py.
HELMS = sorted(WHEELS) if ALL else [max(WHEELS)]


@pytest.fixture(params=HELMS, ids=lambda major: f"helm-{major}", scope="module")
def release(request: pytest.FixtureRequest, kubeconfig: Path) -> Iterator[KeptRelease]:
    """Return a release that is not there yet, of helm 3 and then of helm 4; it goes in the end."""
    found = KeptRelease(kubeconfig, programs(request.param), f"of-helm-{request.param}")
    # The chart's DaemonSets go nowhere else.
    found.kubectl("label", "nodes", "--all", f"{PRESENT}=true", "--overwrite")
    yield found
    found.helm("uninstall", NAME, "--ignore-not-found", "--wait")
    found.kubectl("label", "nodes", "--all", f"{PRESENT}-")
