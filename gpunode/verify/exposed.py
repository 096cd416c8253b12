"""May root alone write what root runs by?"""

from __future__ import annotations

from collections.abc import Iterator

from gpunode.base.comparison import compared
from gpunode.base.subject import Subject
from gpunode.findings import Finding
from gpunode.node import Node


def exposed(node: Node) -> Iterator[Finding]:
    """Judge mode and owner of the configuration of what runs as root; who owns a file on purpose is not known here."""
    files = node.exposed.files
    paths = " ".join(file.path for file in files)
    yield compared(
        "node", Subject.EXPOSED, ", ".join(map(str, files)) or "root's alone", "root's alone", not files,
        remedy=f"look at what they say, then `chown root:root {paths}; chmod go-w {paths}` on the node",
        cause="others than root may write what root runs by: they decide what root does next",
    )  # fmt: skip
