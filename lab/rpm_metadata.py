"""rpm-md metadata: what a repository says of its packages, read; and written for packages that nobody need build.

What only resolves needs no package: dnf and zypper go by this alone until they download.
"""

from __future__ import annotations

import gzip
import hashlib
import lzma
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree
from xml.sax.saxutils import escape, quoteattr

import yaml

from gpunode.lab.packages.rpm import Rpm
from gpunode.lab.world.rpm import RpmWorld
from gpunode.lab.world.rpm_row import RELATIONS

_COMMON = "http://linux.duke.edu/metadata/common"
_RPM = "http://linux.duke.edu/metadata/rpm"
_REPO = "http://linux.duke.edu/metadata/repo"
_FLAGS = {"=": "EQ", ">=": "GE", "<=": "LE", "<": "LT", ">": "GT"}
_SIGNS = {flag: sign for sign, flag in _FLAGS.items()}


@dataclass(frozen=True)
class Described:
    """Hold what metadata say of one package: name-epoch:version-release.architecture, and its relations in rpm's words.

    Relations are sorted, without what rpm adds by itself: a package's own name, the shell of its scripts, and what
    rpmlib must be able to do.
    """

    nevra: str
    requires: tuple[str, ...] = ()
    provides: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()
    obsoletes: tuple[str, ...] = ()
    recommends: tuple[str, ...] = ()


def described(package: Rpm) -> Described:
    """Return what metadata have to say of a package."""
    return Described(package.nevra, **{kind: tuple(sorted(set(getattr(package, kind)))) for kind in RELATIONS})


def read_packages(repository: Path) -> list[Described]:
    """Return what a repository's primary metadata say, sorted; raise ValueError where it has none."""
    root = ElementTree.fromstring(_part(repository, "primary"))
    return sorted(map(_described, root.iter(f"{{{_COMMON}}}package")), key=lambda each: each.nevra)


def read_streams(repository: Path) -> tuple[dict[str, list[str]], str | None]:
    """Return stream -> the packages (nevra) that it lists, sorted, and the default stream; nothing without streams."""
    try:
        text = _part(repository, "modules").decode()
    except ValueError:
        return {}, None
    documents = [document for document in yaml.safe_load_all(text) if document]
    streams = {
        document["data"]["stream"]: sorted(document["data"]["artifacts"]["rpms"])
        for document in documents
        if document["document"] == "modulemd"
    }
    defaults = [document["data"]["stream"] for document in documents if document["document"] == "modulemd-defaults"]
    return streams, (defaults or [None])[0]


def modules_text(world: RpmWorld) -> str:
    """Return modules.yaml of a repository, empty where it has no streams."""
    if world.modules is None:
        return ""
    documents = [
        {
            "document": "modulemd",
            "version": 2,
            "data": {
                "name": world.modules.module,
                "stream": stream,
                "version": 20251021000000,
                "context": hashlib.md5(stream.encode(), usedforsecurity=False).hexdigest()[:8],
                "arch": "x86_64",
                "summary": f"NVIDIA driver of {stream}",
                "description": "SIMULATED, of gpunode's lab.",
                "license": {"module": ["MIT"]},
                "profiles": {"default": {"rpms": ["nvidia-driver"]}},
                "artifacts": {"rpms": [package.nevra for package in packages]},
            },
        }
        for stream, packages in world.streams().items()
    ]
    default = {"module": world.modules.module, "stream": world.modules.default}
    text = yaml.safe_dump_all(documents, explicit_start=True, explicit_end=True, sort_keys=False, width=200)
    defaults: Mapping[str, object] = {"document": "modulemd-defaults", "version": 1, "data": default}
    return text + yaml.safe_dump(defaults, explicit_start=True, explicit_end=True, sort_keys=False)


def write_metadata(repository: Path, packages: Sequence[Rpm], modules: str = "") -> None:
    """Write repodata that describe the packages, none of which is there; `modules` is the text of modules.yaml."""
    folder = repository / "repodata"
    folder.mkdir(parents=True)
    parts = {
        "primary": _primary(packages),
        "filelists": _other("filelists", packages),
        "other": _other("otherdata", packages),
    }
    data = [_compressed(folder, kind, text) for kind, text in parts.items()]
    if modules:
        data.append(_compressed(folder, "modules", modules, "yaml"))
    body = "".join(data)
    text = (
        f'<?xml version="1.0" encoding="UTF-8"?>\n<repomd xmlns="{_REPO}">\n<revision>1</revision>\n{body}</repomd>\n'
    )
    (folder / "repomd.xml").write_text(text, encoding="utf-8")


def _compressed(folder: Path, kind: str, text: str, ending: str = "xml") -> str:
    content = text.encode()
    packed = gzip.compress(content, mtime=0)
    name = f"{kind}.{ending}.gz"
    (folder / name).write_bytes(packed)
    return (
        f'<data type="{kind}"><checksum type="sha256">{hashlib.sha256(packed).hexdigest()}</checksum>'
        f'<open-checksum type="sha256">{hashlib.sha256(content).hexdigest()}</open-checksum>'
        f'<location href="repodata/{name}"/><timestamp>1</timestamp><size>{len(packed)}</size>'
        f"<open-size>{len(content)}</open-size></data>\n"
    )


def _primary(packages: Sequence[Rpm]) -> str:
    body = "".join(map(_package, packages))
    return f'<metadata xmlns="{_COMMON}" xmlns:rpm="{_RPM}" packages="{len(packages)}">\n{body}</metadata>\n'


def _package(package: Rpm) -> str:
    numbered = f"= {package.epoch}:{package.version}-{package.release}"
    # rpmbuild's own words for what a package provides.
    own = [f"{package.name} {numbered}"]
    own += [f"{package.name}(x86-64) {numbered}"] if package.architecture == "x86_64" else []
    relations = "".join(
        f"<rpm:{kind}>{''.join(map(_entry, words))}</rpm:{kind}>"
        for kind in RELATIONS
        if (words := [*getattr(package, kind), *(own if kind == "provides" else [])])
    )
    version = f'epoch="{package.epoch}" ver={quoteattr(package.version)} rel={quoteattr(package.release)}'
    return (
        f'<package type="rpm"><name>{escape(package.name)}</name><arch>{package.architecture}</arch>'
        f'<version {version}/><checksum type="sha256" pkgid="YES">{_id(package)}</checksum>'
        f"<summary>{escape(package.description)}</summary><description/><packager/><url/>"
        f'<time file="1" build="1"/><size package="1" installed="1" archive="1"/>'
        f"<location href={quoteattr(package.filename)}/><format><rpm:license>Proprietary</rpm:license>"
        f'<rpm:vendor/><rpm:group/><rpm:buildhost/><rpm:sourcerpm/><rpm:header-range start="1" end="2"/>'
        f"{relations}</format></package>\n"
    )


def _other(element: str, packages: Sequence[Rpm]) -> str:
    namespace = {"filelists": "filelists", "otherdata": "other"}[element]
    body = "".join(
        f'<package pkgid="{_id(each)}" name={quoteattr(each.name)} arch="{each.architecture}"><version '
        f'epoch="{each.epoch}" ver={quoteattr(each.version)} rel={quoteattr(each.release)}/></package>\n'
        for each in packages
    )
    address = f"http://linux.duke.edu/metadata/{namespace}"
    return f'<{element} xmlns="{address}" packages="{len(packages)}">\n{body}</{element}>\n'


def _id(package: Rpm) -> str:
    return hashlib.sha256(package.nevra.encode()).hexdigest()


def _entry(words: str) -> str:
    name, *relation = words.split(" ")
    # A condition, `(one or another)`, is one name to the metadata.
    if not relation or words.startswith("("):
        return f"<rpm:entry name={quoteattr(words)}/>"
    sign, version = relation
    epoch, colon, rest = version.rpartition(":")
    number, _, release = rest.partition("-")
    told = f'epoch="{epoch if colon else 0}" ver="{number}"' + (f' rel="{release}"' if release else "")
    return f'<rpm:entry name={quoteattr(name)} flags="{_FLAGS[sign]}" {told}/>'


def _described(package: ElementTree.Element) -> Described:
    name, architecture = package.findtext(f"{{{_COMMON}}}name", ""), package.findtext(f"{{{_COMMON}}}arch", "")
    version = package.find(f"{{{_COMMON}}}version")
    assert version is not None
    numbered = f"{version.get('epoch')}:{version.get('ver')}-{version.get('rel')}"

    def words(kind: str) -> tuple[str, ...]:
        return tuple(sorted(_words(package.iterfind(f".//{{{_RPM}}}{kind}/{{{_RPM}}}entry"), name)))

    return Described(f"{name}-{numbered}.{architecture}", **{kind: words(kind) for kind in RELATIONS})


def _words(entries: Iterable[ElementTree.Element], own: str) -> Iterator[str]:
    for entry in entries:
        name = entry.get("name", "")
        # What rpm adds: the package's own name, that with the architecture, and the shell of its scripts.
        if name.startswith("rpmlib(") or name in (f"{own}(x86-64)", "/bin/sh"):
            continue
        if "flags" not in entry.attrib:
            yield name
            continue
        epoch = f"{entry.get('epoch')}:" if entry.get("epoch") != "0" else ""
        release = f"-{entry.get('rel')}" if entry.get("rel") else ""
        if name == own and release:
            continue
        yield f"{name} {_SIGNS[str(entry.get('flags'))]} {epoch}{entry.get('ver')}{release}"


def _part(repository: Path, kind: str) -> bytes:
    """Return one part of a repository's metadata, unpacked."""
    root = ElementTree.parse(repository / "repodata/repomd.xml").getroot()
    for data in root.iter(f"{{{_REPO}}}data"):
        location = data.find(f"{{{_REPO}}}location")
        if data.get("type") == kind and location is not None:
            return _unpacked(repository / location.get("href", ""))
    raise ValueError(f"{repository} has no {kind}")


def _unpacked(path: Path) -> bytes:
    content = path.read_bytes()
    if path.suffix == ".gz":
        return gzip.decompress(content)
    if path.suffix == ".xz":
        return lzma.decompress(content)
    if path.suffix == ".zst":
        return subprocess.run(["zstd", "-dc", str(path)], capture_output=True, check=True).stdout
    return content


__all__ = ["Described", "described", "modules_text", "read_packages", "read_streams", "write_metadata"]
