"""gpunode and what it needs, as one file: the environment that runs this, for nodes with the same Python.

It comes from what is installed here, which `make setup`, or pip with the lock, has checked by digests; a node fetches
nothing from an index. Equal environments make equal files.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import platform
import tarfile
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution, entry_points
from importlib.resources import files
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from gpunode.agent.bundle import Program
from gpunode.agent.pull import OWN

# Of gpunode's own folder what no node needs: the lab has simulated hardware in it.
_LEFT = ("lab", "reference")
# What of a repository a node carries out.
_CARRIED_OUT = tuple(Path(name).parts for name in OWN)
# Of what gpunode needs, what keeps histories: a controller has those, and nodes' reports are collected for it.
_OF_CONTROLLERS = frozenset({"alembic", "sqlalchemy"})


def packed() -> tuple[bytes, Program]:
    """Return the file's content, and what a bundle says of it."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, text, mode in sorted(_files()):
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(text), mode
            archive.addfile(member, io.BytesIO(text))
    found = gzip.compress(plain.getvalue(), compresslevel=6, mtime=0)
    python = ".".join(platform.python_version_tuple()[:2])
    return found, Program(hashlib.sha256(found).hexdigest(), python, platform.machine())


def _files() -> Iterator[tuple[str, bytes, int]]:
    yield "bin/pyinfra", _pyinfra().encode(), 0o755
    root = Path(str(files("gpunode")))
    for path in _below(root):
        inner = path.relative_to(root)
        # Below repository/ is a checkout's, with inventories: all hosts of a site, and what it keeps secret, maybe.
        if inner.parts[0] not in _LEFT and (inner.parts[0] != "repository" or inner.parts[1:] in _CARRIED_OUT):
            yield f"site-packages/gpunode/{inner}", path.read_bytes(), 0o644
    # Its version is looked up among the installed packages, whether its files are there or in a checkout.
    own = distribution("gpunode")
    yield f"site-packages/gpunode-{own.version}.dist-info/METADATA", (own.read_text("METADATA") or "").encode(), 0o644
    for each in closure():
        for name, text in _of(each):
            yield f"site-packages/{name}", text, 0o644


def _pyinfra() -> str:
    """Return pyinfra's program, as pip would write it, for whatever Python runs it."""
    (start,) = entry_points(group="console_scripts", name="pyinfra")
    module, _, function = start.value.partition(":")
    return f"#!/usr/bin/env python3\nimport sys\n\nfrom {module} import {function}\n\nsys.exit({function}())\n"


def _below(folder: Path) -> Iterator[Path]:
    """Yield the files below a folder; links of the checkout's lead to folders of ours, and are followed."""
    for path in sorted(folder.iterdir()):
        if path.name == "__pycache__":
            continue
        if path.is_dir():
            yield from _below(path)
        elif path.is_file():
            yield path


def _of(found: Distribution) -> Iterator[tuple[str, bytes]]:
    for each in found.files or ():
        path = Path(str(each.locate()))
        # Programs stand beside site-packages; a node runs pyinfra by the one above.
        if ".." not in each.parts and "__pycache__" not in each.parts and path.is_file():
            yield str(each), path.read_bytes()


def closure() -> list[Distribution]:
    """Return the installed packages that gpunode needs, without its extras, and without itself."""
    known: dict[str, Distribution] = {}
    todo = [(Requirement(text), "") for text in distribution("gpunode").requires or ()]
    while todo:
        required, extra = todo.pop()
        if required.marker is not None and not required.marker.evaluate({"extra": extra}):
            continue
        name = canonicalize_name(required.name)
        if name in _OF_CONTROLLERS:
            continue
        try:
            found = known.get(name) or distribution(name)
        except PackageNotFoundError:
            continue
        fresh = name not in known
        known[name] = found
        for each in found.requires or ():
            wanted = Requirement(each)
            todo += [(wanted, asked) for asked in required.extras]
            if fresh:
                todo.append((wanted, ""))
    return [known[name] for name in sorted(known)]
