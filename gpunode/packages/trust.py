"""By which keys packages are trusted: the keyrings on a node, who may write them, and what preflight refuses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gpunode.base import tables
from gpunode.base.probe import shell_text
from gpunode.base.probe_output import repeated
from gpunode.base.reading import ParseError, Reading
from gpunode.base.verdicts import Caution, CautionMessage, Refusal, RefusalMessage
from gpunode.packages.deb import AptSources
from gpunode.packages.families.pacman import CONFIGURATION, unsafe
from gpunode.settings import Settings
from gpunode.system.operating_system import OperatingSystem

# The function `primary_keys` for whoever asks by shell.
PRIMARY_KEYS = f"{shell_text('packages/keyring')}\n"

# Mode, owner and group of a keyring, as `stat -c '%a %U:%G'` prints them: whoever may write it decides what is
# installed, and apt reads it as its own user _apt.
PERMISSIONS = "644 root:root"


@dataclass(frozen=True)
class Keyrings(Reading):
    """Hold (repository, fingerprint of a primary key in its keyring) and (repository, its keyring's permissions)."""

    keys: tuple[tuple[str, str], ...]
    permissions: tuple[tuple[str, str], ...] = ()

    def of(self, repository: str) -> tuple[str, ...]:
        """Return the fingerprints in a repository's keyring."""
        return tuple(fingerprint for name, fingerprint in self.keys if name == repository)

    def permissions_of(self, repository: str) -> str | None:
        """Return mode, owner and group of a repository's keyring, None where there is none."""
        return dict(self.permissions).get(repository)


def parse_keyrings(lines: list[str]) -> Keyrings:
    """Parse `key=NAME FINGERPRINT` and `permissions=NAME MODE OWNER:GROUP` lines."""
    keys = []
    for line in repeated(lines, "key"):
        name, _, fingerprint = line.partition(" ")
        if len(fingerprint) != 40 or not fingerprint.isalnum():
            raise ParseError(f"not a key fingerprint: {fingerprint[:60]!r}")
        keys.append((name, fingerprint.upper()))
    permissions = (line.partition(" ")[::2] for line in repeated(lines, "permissions"))
    return Keyrings(tuple(sorted(keys)), tuple(sorted((name, found) for name, found in permissions)))


def uses_repository(settings: Settings, name: str) -> bool:
    """Say whether anything that the settings ask for comes from the repository `cuda`, `toolkit` or `docker`."""
    driver, cuda, runtimes = settings.driver, settings.cuda, (settings.containerd, settings.docker)
    return {
        "cuda": settings.dcgm.enabled
        or any(each.enabled and each.source == "cuda-repository" for each in (driver, cuda)),
        "toolkit": settings.toolkit.enabled,
        "docker": any(each.enabled and each.source == "docker-repository" for each in runtimes),
    }[name]


KEY_NOT_TAKEN = RefusalMessage(
    "key-not-taken",
    "The distribution's package manager does not accept the key that the settings name.",
    component="repositories",
    reason="apt of {name} does not accept repositories.cuda.key_fingerprint {fingerprint}: it signs itself by SHA-1",
    source="NVIDIA/cuda-repo-management issues 30, 34 and 39 (gpunode/data/distributions.yaml, refused_keys)",
    remedy="leave key_url and key_fingerprint out for {name}, whose own key gpunode knows",
)
KEY_NOT_VERIFIED = RefusalMessage(
    "key-not-verified",
    "NVIDIA's repository for this distribution is signed by a key whose fingerprint gpunode does not know.",
    component="repositories",
    reason="NVIDIA's repository for {name} has a key of its own ({key}), whose fingerprint gpunode does not know",
    source="gpunode/data/distributions.yaml (unverified_key)",
    remedy="look up the key's full fingerprint at a source that you trust, and set repositories.cuda.key_fingerprint; "
    "or take driver and CUDA from NVIDIA's runfiles (driver.source and cuda.source = 'runfile')",
    detail="gpunode trusts no key that has not been verified.",
)


def key_refusals(settings: Settings, system: OperatingSystem) -> Iterator[Refusal]:
    """Refuse NVIDIA's repository where its key is not verified, and the settings do not name its fingerprint.

    Refuse a key, too, that the settings name and the distribution's package manager does not take.
    """
    found = tables.distribution(system.id, system.version_id)
    named = "key_fingerprint" in settings.repositories.cuda.model_fields_set
    keys = {tables.drivers().signing_keys[key].fingerprint for key in found.refused_keys} if found else set()
    if found is not None and named and uses_repository(settings, "cuda"):
        fingerprint = settings.repositories.cuda.key_fingerprint
        if fingerprint in keys:
            yield KEY_NOT_TAKEN(name=found.name, fingerprint=fingerprint)
    if found is not None and found.unverified_key and not named and uses_repository(settings, "cuda"):
        yield KEY_NOT_VERIFIED(name=found.name, key=found.unverified_key.rpartition("/")[2])


REPOSITORY_NOT_SIGNED = RefusalMessage(
    "repository-not-signed",
    "pacman takes packages of one of its repositories without a trusted signature.",
    component="repositories",
    reason="pacman takes packages of its repository [{name}] without a signature by a trusted key (no {lacking})",
    source=f"{CONFIGURATION}, `pacman-conf -r {{name}} SigLevel`",
    remedy="set SigLevel = Required for [{name}], sign its packages and trust the key (pacman-key --lsign-key), or "
    "take it out",
    detail="Any repository can have any package, so that this one could replace the driver.",
)


def trust_refusals(sources: AptSources) -> Iterator[Refusal]:
    """Refuse a repository of pacman's whose packages need no trusted signature: it can replace any package."""
    for name, lacking in unsafe(sources.pacman_repositories):
        yield REPOSITORY_NOT_SIGNED(name=name, lacking=lacking)


WITHOUT_PROXY = CautionMessage(
    "pacman-without-proxy",
    component="repositories",
    reason="pacman has no setting for a proxy: it reaches its mirrors without the proxy of the settings",
    source="pacman.conf(5)",
    remedy="if its mirrors are reached only by the proxy, set http_proxy and https_proxy in /etc/environment",
)


def proxy_cautions(settings: Settings, sources: AptSources) -> Iterator[Caution]:
    """Warn that pacman has no setting of a proxy."""
    if settings.proxy.environment and sources.pacman_repositories:
        yield WITHOUT_PROXY()


NAMED_TWICE = CautionMessage(
    "repository-named-twice",
    "Another list of the node names NVIDIA's packages, too.",
    component="repositories",
    reason="{path} names NVIDIA packages too: the run disables a second entry of gpunode's repositories, and keeps "
    "another repository, which may offer other versions",
    source="the file {path}",
    remedy="remove the entry, if it is not needed",
)
RETIRED_KEY = CautionMessage(
    "retired-key",
    "A retired key of NVIDIA's is trusted for every repository, and the run removes it.",
    component="repositories",
    reason="{path} trusts the retired key {key} for every repository; the run removes it",
    source="NVIDIA's notice of 2022 (gpunode/data/drivers.yaml, retired_key_ids)",
    remedy="nothing to do",
)


def trust_cautions(sources: AptSources) -> Iterator[Caution]:
    """Warn of lists that also offer NVIDIA's packages, and of retired keys; the run disables what would disturb it."""
    for path, text in sources.sources:
        if any(not line.lstrip().startswith("#") and line.strip() for line in text.splitlines()):
            yield NAMED_TWICE(path=path)
    retired = tables.drivers().retired_key_ids
    for path, keys in sources.trusted:
        for key in keys:
            if any(key.endswith(identity) for identity in retired):
                yield RETIRED_KEY(path=path, key=key)
