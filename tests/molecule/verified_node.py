"""A verified node whose package manager is not apt, and the ways in which its repositories stray: what they share.

SIMULATED: the distributions, GPUs; the package managers are real.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from gpunode.lab import nodes as lab_nodes
from gpunode.lab.nodes import Node
from tests.molecule.conftest import command, converge, inventory_with, out
from tests.molecule.deviations.straying import Deviation

SERVED = "http://127.0.0.1:8900"
TOOLKIT = "rpm -q --qf '%{VERSION}' nvidia-container-toolkit"
TRUSTED = "Trust the cuda repository"
_ALL_OFF: dict[str, object] = {name: {"enabled": False} for name in ("driver", "cuda", "containerd")}


@dataclass(frozen=True)
class Repositories:
    """Hold where a package manager that works with rpm has its repositories.

    + family: as the lab has it; distribution: NVIDIA's name of it
    + folder: where the entries are; own: what is configured of a proxy besides gpunode's repositories
    + proxied: what the entry of a repository says of a proxy at 127.0.0.1:1
    """

    family: str
    distribution: str
    folder: str
    own: str
    proxied: str

    @property
    def second_entry(self) -> str:
        """The path of an entry that names NVIDIA's repository once more."""
        return f"{self.folder}/cuda-{self.distribution}.repo"


DNF = Repositories(
    family="dnf",
    distribution="rhel9",
    folder="/etc/yum.repos.d",
    own="/etc/dnf/dnf.conf /etc/yum.repos.d/lab-baseos.repo",
    proxied="proxy=http://127.0.0.1:1",
)
DNF5 = Repositories(
    family="dnf5",
    distribution="fedora42",
    folder=DNF.folder,
    own="/etc/dnf/dnf.conf /etc/yum.repos.d/lab-fedora.repo",
    proxied=DNF.proxied,
)
ZYPPER = Repositories(
    family="zypper",
    distribution="opensuse15",
    folder="/etc/zypp/repos.d",
    own="/etc/zypp/repos.d/lab-oss.repo",
    proxied="?proxy=127.0.0.1&proxyport=1",
)


def drift() -> int:
    """Return the exit code of `gpunode drift` of the lab's nodes."""
    return command("gpunode", "drift", "--json", "inventories/lab.py").code


def the_node_has(node: Node, absent: str, version_of: str, version: str) -> None:
    """Assert that the node has none of the programs `absent`, and what `version_of` prints."""
    assert lab_nodes.run(node, f"command -v {absent}").stdout == ""
    assert out(node, version_of) == version


def the_verdict_is_good_and_names_are_held(node: Node, held: str, names: Collection[str]) -> None:
    """`held`: shell text that prints the names of what is held."""
    assert drift() == 0
    assert set(names) <= set(out(node, held).split())


def signatures_are_checked(repositories: Repositories, node: Node, packages_key: str) -> None:
    """`packages_key`: the setting by which a package's own signature is checked."""
    cuda = out(node, f"cat {repositories.folder}/gpunode-cuda.repo").splitlines()
    assert {f"{packages_key}=1", "repo_gpgcheck=1", "gpgkey=file:///etc/pki/rpm-gpg/gpunode-cuda.asc"} <= set(cuda)
    # NVIDIA signs the list of these packages, not the packages.
    toolkit = out(node, f"cat {repositories.folder}/gpunode-toolkit.repo").splitlines()
    assert {f"{packages_key}=0", "repo_gpgcheck=1"} <= set(toolkit)


def a_second_entry(repositories: Repositories) -> Deviation:
    """Return the deviation: somebody's entry names a repository of ours once more, and asks for no signature."""
    there = f"{SERVED}/{repositories.family}/cuda/{repositories.distribution}/$basearch/"
    name = f"cuda-{repositories.distribution}"
    text = f"[{name}]\\nname=x\\nbaseurl={there}\\nenabled=1\\ngpgcheck=0\\n"
    return Deviation(f"printf '{text}' > {repositories.second_entry}", TRUSTED)


def the_second_entry_is_switched_off(repositories: Repositories, node: Node) -> None:
    """Assert it once a run has healed `a_second_entry`, and take the entry away."""
    path = repositories.second_entry
    assert out(node, f"grep -c '^enabled=0' {path}; cat {path}.gpunode-disabled | grep enabled") == "1\nenabled=1"
    out(node, f"rm {path} {path}.gpunode-disabled")


def newer_toolkit(
    repositories: Repositories, folder: Path, node: Node, repository: dict[str, str] | None = None, **more: object
) -> str:
    """Return an inventory that asks for a newer toolkit alone, from another repository where one is given."""
    there = {
        "key_url": f"{SERVED}/keys/gpunode-lab.asc",
        "url": f"{SERVED}/{repositories.family}/toolkit/stable/rpm/x86_64",
    }
    asked: dict[str, object] = {"toolkit": {"version": "1.18.0"}, **more}
    if repository is not None:
        asked["repositories"] = {"toolkit": {**there, **repository}}
    return inventory_with(folder, {node.name: {**_ALL_OFF, **asked}})


def a_key_with_another_fingerprint_is_refused(repositories: Repositories, node: Node, folder: Path) -> None:
    run = converge(inventory=newer_toolkit(repositories, folder, node, {"key_fingerprint": "A" * 40}))
    assert run.code == 1
    assert f"but {'A' * 40} is pinned" in run.printed
    assert out(node, TOOLKIT) == "1.17.8"


def a_proxy_reaches_our_repositories_alone(repositories: Repositories, node: Node, folder: Path, *said: str) -> None:
    """`said`: what else is said where nobody answers."""
    asked = {"toolkit": {}, "proxy": {"http": "http://127.0.0.1:1"}}
    run = converge(inventory=inventory_with(folder, {node.name: {**_ALL_OFF, **asked}}))
    # Nobody answers there, so that asking at all shows that it was asked.
    assert run.code == 1
    for words in ("the repository toolkit could not be read or verified", *said):
        assert words in run.printed
    assert repositories.proxied in out(node, f"cat {repositories.folder}/gpunode-toolkit.repo")
    assert "proxy" not in out(node, f"cat {repositories.own}")
    healed = converge()
    assert healed.code == 0, healed.printed
