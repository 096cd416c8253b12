"""What else does apt listen to, beside the repositories of the settings?"""

from __future__ import annotations

from collections.abc import Iterator

from gpunode import tables
from gpunode.apt_sources import AptSources
from gpunode.preflight.verdicts import Caution


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
            )
    retired = tables.drivers().retired_key_ids
    for path, keys in sources.trusted:
        for key in keys:
            if any(key.endswith(identity) for identity in retired):
                yield Caution(
                    "repositories",
                    f"{path} trusts the retired key {key} for every repository; the run takes it out",
                    "NVIDIA's notice of 2022 (gpunode/data/drivers.yaml, signing_keys)",
                    "nothing to do",
                )
