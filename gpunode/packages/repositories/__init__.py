"""Package repositories: how package managers are told of them (`source`), and whether they are trusted (`decide`)."""

from gpunode.packages.repositories.source import (
    NAMES,
    SOURCES,
    PackageRepository,
    key_path,
    package_repository,
    source_path,
)

__all__ = ["NAMES", "SOURCES", "PackageRepository", "key_path", "package_repository", "source_path"]
