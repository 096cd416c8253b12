"""Package repositories: how package managers are told of them, and whether each is trusted by its pinned key alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gpunode.base import tables
from gpunode.base.comparison import finding_message
from gpunode.base.decision import Decision, Step, bad
from gpunode.base.disruption import Disruption
from gpunode.base.findings import Finding
from gpunode.packages.families import dnf, zypper
from gpunode.packages.trust import PERMISSIONS, Keyrings, uses_repository
from gpunode.settings import Settings
from gpunode.system.operating_system import OperatingSystem

NAMES = ("cuda", "toolkit", "docker")
# Family -> the paths of a repository's file and of its key's.
_BY_RPM = "/etc/pki/rpm-gpg/gpunode-{}.asc"
SOURCES = {
    "apt": ("/etc/apt/sources.list.d/gpunode-{}.sources", "/usr/share/keyrings/gpunode-{}.gpg"),
    "dnf": ("/etc/yum.repos.d/gpunode-{}.repo", _BY_RPM),
    "dnf5": ("/etc/yum.repos.d/gpunode-{}.repo", _BY_RPM),
    "zypper": ("/etc/zypp/repos.d/gpunode-{}.repo", _BY_RPM),
}


def source_path(family: str, label: str) -> str:
    """Return the path of the file that tells a package manager of a repository of ours."""
    return SOURCES[family][0].format(label)


def key_path(family: str, label: str) -> str:
    """Return the path of the file that holds a repository's pinned key."""
    return SOURCES[family][1].format(label)


def source_text(uri: str, keyring: str, suite: str = "/", components: str = "") -> str:
    """Return a deb822 source for one repository that trusts one keyring alone; `suite` is `/` for a flat one."""
    lines = ["# Written by gpunode", "Types: deb", f"URIs: {uri}", f"Suites: {suite}"]
    if components:
        lines.append(f"Components: {components}")
    return "\n".join([*lines, f"Signed-By: {keyring}", ""])


@dataclass(frozen=True)
class PackageRepository:
    """Hold a repository as the operations of its package manager take it.

    label: names its files; uri, suite, components: as in sources.list, suite `/` for a flat repository
    packages_signed: whether each package is signed, too; proxies: http_proxy, https_proxy and no_proxy
    """

    family: str
    label: str
    uri: str
    key_url: str
    key_fingerprint: str
    suite: str = "/"
    components: str = ""
    packages_signed: bool = False
    proxies: Mapping[str, str] = field(default_factory=dict)

    @property
    def path(self) -> str:
        """Return the path of the file that names it."""
        return source_path(self.family, self.label)

    @property
    def address(self) -> str:
        """Return where its lists are; rpm's have release and component in the address."""
        if self.family == "apt" or not self.components:
            return self.uri
        return f"{self.uri.rstrip('/')}/{self.suite}/$basearch/{self.components}"

    @property
    def text(self) -> str:
        """Return the text of that file."""
        key = key_path(self.family, self.label)
        if self.family == "apt":
            return source_text(self.uri, key, self.suite, self.components)
        write = zypper.repository_text if self.family == "zypper" else dnf.repository_text
        proxy = self.proxies.get(f"{self.address.partition(':')[0]}_proxy")
        return write(self.label, self.address, key, self.packages_signed, proxy)


def package_repository(settings: Settings, system: OperatingSystem, name: str) -> PackageRepository | None:
    """Return the repository `cuda`, `toolkit` or `docker` of the settings.

    None where the distribution has everything itself (Arch), or is not one that gpunode knows, on that architecture.
    """
    of = tables.distribution(system.id, system.version_id)
    if of is None or of.family not in SOURCES or of.repository is None or system.architecture not in of.architectures:
        return None
    filled = settings.repositories.on(name, of.family, of.unverified_key, of.repository).at(
        distribution=of.repository,
        architecture=of.architectures[system.architecture],
        os_id=of.docker or system.id,
        channel=settings.toolkit.channel,
    )
    # Docker's is divided by release, as distributions' own are.
    release = (of.codename if of.newer else system.codename) or of.version
    suite, components = (release, "stable") if name == "docker" else ("/", "")
    return PackageRepository(
        of.family,
        name,
        filled.url,
        filled.key_url,
        filled.key_fingerprint,
        suite,
        components,
        tables.repositories(of.family)[name].packages_signed,
        settings.proxy.environment,
    )


_REPLACED, _MISSING = "the keyring was replaced or holds another key", "its key is not on the node"
KEY = finding_message(
    "repositories",
    "key of",
    "The key by which packages of a repository are trusted is not the one that is pinned.",
    "The keyring holds another key, or none. Packages are refused, or another key is trusted.",
    name="key",
    causes=(_REPLACED, _MISSING),
)
KEYRING = finding_message(
    "repositories",
    "keyring of",
    "Users other than root may change a keyring, or it cannot be read.",
    "Who changes it decides whose packages root installs.",
    name="keyring",
    cause="others than root may change the keyring, or it cannot be read",
)
SOURCES_READ = finding_message(
    "repositories",
    "sources of packages",
    "The package manager cannot read its sources or its configuration.",
    "Nothing can be installed or updated, by a run or by anything else: security updates stop. dnf skips such a file, "
    "and all other package managers end with an error.",
    remedies=("correct or remove the file that the cause names, and run deploys/gpu_node.py again",),
)


def desired_of(settings: Settings, system: OperatingSystem) -> dict[str, str]:
    """Return name -> fingerprint of the key of each repository that anything is taken from.

    There is none of ours where all comes from the distribution's own, whose keys are the package manager's.
    """
    of = tables.distribution(system.id, system.version_id)
    if of is not None and of.repository is None:
        return {}
    family, key, folder = (of.family, of.unverified_key, of.repository) if of else ("apt", None, None)
    return {
        name: settings.repositories.on(name, family, key, folder).key_fingerprint
        for name in NAMES
        if uses_repository(settings, name)
    }


def decide(desired: Mapping[str, str], actual: Keyrings, source_errors: Sequence[str] = ()) -> Decision[None]:
    """Return what is to be done about the keyrings: for root alone to change.

    desired: repository -> fingerprint of its key; source_errors: why the package manager cannot read its sources
    """
    findings: list[Finding] = []
    if source_errors:
        findings.append(SOURCES_READ.compared("cannot be read", "readable", False, cause="; ".join(source_errors)))
    steps: list[Step[None]] = []
    for name, to_be in desired.items():
        found = actual.of(name)
        cause = _REPLACED if found else _MISSING
        both = [KEY.compared(", ".join(found) or None, to_be, found == (to_be,), of=name, cause=cause)]
        permissions = actual.permissions_of(name)
        if permissions is not None:
            both.append(KEYRING.compared(permissions, PERMISSIONS, permissions == PERMISSIONS, of=name))
        findings += both
        if differences := bad(*both):
            steps.append(Step(f"trust the {name} repository by its pinned key", differences, Disruption.nothing))
    return Decision(tuple(findings), tuple(steps))
