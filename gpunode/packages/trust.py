"""By which keys is a repository trusted, and what else does the package manager listen to?"""

from __future__ import annotations

from collections.abc import Iterator

from gpunode.base import tables
from gpunode.base.codes import preflight
from gpunode.base.verdicts import Caution, Refusal
from gpunode.packages.apt_sources import AptSources
from gpunode.packages.families.pacman import CONFIGURATION, unsafe
from gpunode.settings import Settings
from gpunode.system.operating_system import OperatingSystem


def uses_repository(settings: Settings, name: str) -> bool:
    """Say whether anything that the settings ask for comes from the repository `cuda`, `toolkit` or `docker`."""
    driver, cuda, runtimes = settings.driver, settings.cuda, (settings.containerd, settings.docker)
    return {
        "cuda": settings.dcgm.enabled
        or any(each.enabled and each.source == "cuda-repository" for each in (driver, cuda)),
        "toolkit": settings.toolkit.enabled,
        "docker": any(each.enabled and each.source == "docker-repository" for each in runtimes),
    }[name]


def key_refusals(settings: Settings, system: OperatingSystem) -> Iterator[Refusal]:
    """Refuse NVIDIA's repository where nobody has verified its key, and the settings do not name its fingerprint.

    Refuse a key, too, that the settings name and the distribution's package manager does not take.
    """
    found = tables.distribution(system.id, system.version_id)
    named = "key_fingerprint" in settings.repositories.cuda.model_fields_set
    keys = {tables.drivers().signing_keys[key].fingerprint for key in found.refused_keys} if found else set()
    if found is not None and named and uses_repository(settings, "cuda"):
        fingerprint = settings.repositories.cuda.key_fingerprint
        if fingerprint in keys:
            yield Refusal(
                "repositories",
                f"apt of {found.name} does not take the key {fingerprint}, which repositories.cuda.key_fingerprint "
                "names: it signs itself by SHA-1",
                "NVIDIA/cuda-repo-management issues 30, 34 and 39 (gpunode/data/distributions.yaml, refused_keys)",
                f"leave key_url and key_fingerprint out for {found.name}, whose own key gpunode knows",
                preflight("key-not-taken"),
            )
    if found is not None and found.unverified_key and not named and uses_repository(settings, "cuda"):
        yield Refusal(
            "repositories",
            f"NVIDIA's repository for {found.name} is signed by a key of its own "
            f"({found.unverified_key.rpartition('/')[2]}), whose fingerprint gpunode does not know",
            "gpunode/data/distributions.yaml (unverified_key)",
            "look the key's full fingerprint up where you trust it, and set repositories.cuda.key_fingerprint; or take "
            "driver and CUDA from NVIDIA's runfiles (driver.source and cuda.source = 'runfile')",
            preflight("key-not-verified"),
        )


def trust_refusals(sources: AptSources) -> Iterator[Refusal]:
    """Refuse where pacman would take packages that nobody signed, or anybody: any repository can bring any package."""
    for name, lacking in unsafe(sources.pacman_repositories):
        yield Refusal(
            "repositories",
            f"pacman takes packages of its repository [{name}] without a signature by a trusted key (no {lacking})",
            f"{CONFIGURATION}, `pacman-conf -r {name} SigLevel`",
            f"set SigLevel = Required for [{name}], sign its packages and trust the key (pacman-key --lsign-key), or "
            "take it out",
            preflight("repository-not-signed"),
        )


def proxy_cautions(settings: Settings, sources: AptSources) -> Iterator[Caution]:
    """Tell that pacman has no setting of a proxy."""
    if settings.proxy.environment and sources.pacman_repositories:
        yield Caution(
            "repositories",
            "pacman has no setting for a proxy, and gpunode sets none for it",
            "pacman.conf(5)",
            "where its mirrors are reached by the proxy alone, set http_proxy and https_proxy in /etc/environment",
            preflight("pacman-without-proxy"),
        )


def trust_cautions(sources: AptSources) -> Iterator[Caution]:
    """Tell of lists that also offer NVIDIA's packages, and of retired keys; the run disables what stands in its way."""
    for path, text in sources.sources:
        if any(not line.lstrip().startswith("#") and line.strip() for line in text.splitlines()):
            yield Caution(
                "repositories",
                f"{path} names NVIDIA packages too: a second entry of a repository of ours is disabled, another "
                "repository stays and may offer other versions",
                path,
                "remove it, if nobody needs it",
                preflight("repository-named-twice"),
            )
    retired = tables.drivers().retired_key_ids
    for path, keys in sources.trusted:
        for key in keys:
            if any(key.endswith(identity) for identity in retired):
                yield Caution(
                    "repositories",
                    f"{path} trusts the retired key {key} for every repository; the run takes it out",
                    "NVIDIA's notice of 2022 (gpunode/data/drivers.yaml, retired_key_ids)",
                    "nothing to do",
                    preflight("retired-key"),
                )
