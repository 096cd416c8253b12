"""Settings of Multi-Instance GPU."""

from __future__ import annotations

import stat
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from gpunode.base.folding import shortened
from gpunode.settings.component import Component, FilePath, matching
from gpunode.settings.driver import root_elsewhere

if TYPE_CHECKING:
    from gpunode.settings.mig_parted.declaration import Declaration

MigConfigName = Annotated[
    str, matching(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", "a configuration's name such as 'all-1g.10gb'")
]
UnitName = Annotated[
    str, matching(r"[A-Za-z0-9][A-Za-z0-9:_.@-]{0,200}\.service", "a service such as 'nvidia-dcgm.service'")
]


class MigSettings(Component):
    """Multi-Instance GPU: the layout of a node's GPUs, reached by the smallest change, put back where that fails, and
    brought back at every boot (docs/mig.md)."""

    config: MigConfigName | None = None
    """Name of a MIG configuration: of `file`, else one that NVIDIA publishes for the node's GPUs, such as
    `all-balanced`. Not given: the GPUs are left as they are, and nothing brings a layout back at a boot."""
    file: FilePath | None = None
    """MIG declaration in the format of nvidia-mig-parted, on the machine where gpunode runs; a relative path counts
    from where it is run."""

    config_from_label: bool = False
    """true: each node's configuration is what its label `nvidia.com/mig.config` names, which people set in the cluster;
    it is looked up once in a run, by kubectl, and a node without that label is left as it is. Needs
    `kubernetes.enabled`, and `config` left out."""

    stop_units: tuple[UnitName, ...] = Field(
        ("nvidia-persistenced.service", "nvidia-dcgm.service", "nvidia-dcgm-exporter.service"),
        max_length=64,
        strict=False,
    )
    """Services that may be stopped where they hold a GPU whose mode or instances are to change; they are always started
    again. Whoever else holds it is named, and the GPU is left as it is."""

    def contradictions(self) -> Iterator[tuple[str, str]]:
        """Yield what is wrong with the declaration, and a configuration that there is not."""
        # Late: what has no MIG needs none of it.
        from gpunode.settings.mig_parted.declaration import known_names, selected
        from gpunode.settings.mig_parted.document import DeclarationError, word

        if self.config_from_label and self.config is not None:
            yield "config", "cannot stand beside config_from_label = True: leave one of them out"
            return
        if self.file is None:
            if self.config is not None and self.config not in known_names():
                message = "is no configuration that NVIDIA publishes for any product; name the file that has it: file"
                yield "config", message
            return
        try:
            declaration = self.declaration()
        except DeclarationError as error:
            first, more = error.mistakes[0], len(error.mistakes) - 1
            others = f" (and {more} more; `gpunode mig check` lists them)" if more else ""
            yield "file", f"is refused: {first}{others}"
            return
        names = ", ".join(map(word, declaration.configs)) or "none"
        if self.config is None:
            if self.config_from_label:
                return
            yield "file", f"says nothing without config; it has {shortened(names)}"
            return
        try:
            selected(declaration, self.config)
        except DeclarationError:
            yield "config", f"is not in {self.file}, which has {shortened(names)}"

    def beside(self, others: Mapping[str, Component]) -> Iterator[tuple[str, str]]:
        """Yield what gpunode would do by the programs of a driver at / alone."""
        root = root_elsewhere(others)
        for key in ("config", "config_from_label"):
            if root is not None and getattr(self, key):
                message = f"is carried out by a driver at '/' alone, and driver.root is {root!r}; leave it out"
                yield key, f"{message}, and have the GPU Operator's MIG manager do it"

    def declaration(self) -> Declaration:
        """Return the declaration in `file`; raise DeclarationError. Read again only where the file changed."""
        from gpunode.settings.mig_parted.declaration import read_declaration
        from gpunode.settings.mig_parted.document import DeclarationError, Mistake

        path = Path(self.file or "")
        try:
            found = path.stat()
        except (OSError, ValueError):
            return read_declaration(path)
        if not stat.S_ISREG(found.st_mode):
            # A pipe would keep everybody waiting.
            raise DeclarationError(str(path), [Mistake("(document)", None, "is no regular file")])
        return _declaration(path, (found.st_ino, found.st_size, found.st_mtime_ns))


@lru_cache(maxsize=32)
def _declaration(path: Path, stamp: tuple[int, int, int]) -> Declaration:
    from gpunode.settings.mig_parted.declaration import read_declaration

    return read_declaration(path)
