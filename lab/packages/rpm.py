"""RPM packages as data, and their building and signing with rpmbuild, in a container that has it."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from gpunode.lab.errors import LabError
from gpunode.lab.packages.deb import Payload, write_files
from gpunode.lab.signing import public_key
from gpunode.lab.toolbox import run_in

_RECIPE = "1"
_SPEC = """%define debug_package %{{nil}}
%define __os_install_post %{{nil}}
%define _build_id_links none
%define _binary_payload w1.gzdio
Name: {group}
Version: 1
Release: 1
Summary: Source of the lab's packages
License: Proprietary
AutoReqProv: no
%description
SIMULATED
%install
cp -a /work/{group}/tree/. %{{buildroot}}/
"""
_BUILD = """
export GNUPGHOME=/root/gnupg; mkdir -m 700 "$GNUPGHOME"
gpg --batch --quiet --import /work/secret.asc
for spec in /work/*/group.spec; do
  folder=${spec%/*}
  rpmbuild -bb --quiet --define "_topdir $folder/build" --define "_rpmdir $folder/rpms" \\
    --define '_build_name_fmt %%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm' "$spec" > "$folder/log" 2>&1 ||
    { tail -n 20 "$folder/log" >&2; exit 1; }
  rpmsign --addsign --define "_gpg_name $fingerprint" --define '__gpg /usr/bin/gpg' "$folder"/rpms/*.rpm \\
    > "$folder/log" 2>&1 || { tail -n 20 "$folder/log" >&2; exit 1; }
done
"""


class RpmError(LabError):
    """Say which packages could not be built, in rpmbuild's words."""


@dataclass(frozen=True)
class Rpm:
    """Hold one binary package; dependencies are written as in a spec file, scripts by their section (post, preun ...).

    `epoch` 0 is none at all. `config` are paths of files that an upgrade leaves as an administrator has changed them.
    """

    name: str
    version: str
    description: str
    epoch: int = 0
    release: str = "1"
    architecture: str = "x86_64"
    requires: tuple[str, ...] = ()
    provides: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()
    obsoletes: tuple[str, ...] = ()
    recommends: tuple[str, ...] = ()
    files: tuple[Payload, ...] = ()
    scripts: tuple[tuple[str, str], ...] = ()
    config: tuple[str, ...] = ()

    @property
    def filename(self) -> str:
        """Return the file name that a repository uses, which tells no epoch."""
        return f"{self.name}-{self.version}-{self.release}.{self.architecture}.rpm"

    @property
    def nevra(self) -> str:
        """Return name, epoch, version, release and architecture as a module's list of artifacts has them."""
        return f"{self.name}-{self.epoch}:{self.version}-{self.release}.{self.architecture}"

    def spec(self) -> str:
        """Return this package's part of a spec file."""
        noarch = ["BuildArch: noarch"] if self.architecture == "noarch" else []
        lines = [
            f"%package -n {self.name}",
            *([f"Epoch: {self.epoch}"] if self.epoch else []),
            f"Version: {self.version}",
            f"Release: {self.release}",
            f"Summary: {self.description}",
            *noarch,
            "AutoReqProv: no",
            *(f"Requires: {item}" for item in self.requires),
            *(f"Provides: {item}" for item in self.provides),
            *(f"Conflicts: {item}" for item in self.conflicts),
            *(f"Obsoletes: {item}" for item in self.obsoletes),
            *(f"Recommends: {item}" for item in self.recommends),
            f"%description -n {self.name}",
            "SIMULATED: a fixture of gpunode's lab; holds nothing of NVIDIA's.",
        ]
        for section, text in self.scripts:
            lines += [f"%{section} -n {self.name}", text.replace("%", "%%").strip()]
        if any(".so." in file.path for file in self.files) and "post" not in dict(self.scripts):
            lines += [f"%post -n {self.name}", "/sbin/ldconfig"]
        lines += [f"%files -n {self.name}"]
        lines += [f"{'%config(noreplace) ' if file.path in self.config else ''}/{file.path}" for file in self.files]
        return "\n".join(lines) + "\n"


def build_rpms(groups: Mapping[str, Sequence[Rpm]], cache: Path, root: Path, secret: Path) -> dict[str, list[Path]]:
    """Return the signed files of all packages, by group; what the cache folder has is not built again.

    + groups: name -> packages whose files do not collide; no package may be twice in one
    + root: a root filesystem with rpmbuild
    + secret: the key that signs, as lab.signing keeps it

    Raises RpmError in rpmbuild's words.
    """
    _, fingerprint = public_key(secret)
    places = {name: cache / f"{_digest(packages, fingerprint)}.rpms" for name, packages in groups.items()}
    lacking = {name: groups[name] for name, place in places.items() if not place.is_dir()}
    if lacking:
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as folder:
            work = Path(folder)
            shutil.copyfile(secret, work / "secret.asc")
            for name, packages in lacking.items():
                _write_group(work / name, name, packages)
            done = run_in(root, work, _BUILD, fingerprint=fingerprint)
            if done.returncode:
                raise RpmError(f"cannot build the rpm packages: {(done.stderr or done.stdout).strip()}")
            for name in lacking:
                if not places[name].exists():
                    (work / name / "rpms").rename(places[name])
    return {name: [places[name] / item.filename for item in packages] for name, packages in groups.items()}


def _digest(packages: Sequence[Rpm], fingerprint: str) -> str:
    content = [json.dumps(asdict(item), default=lambda raw: hashlib.sha256(raw).hexdigest()) for item in packages]
    content += [item.spec() for item in packages]
    return hashlib.sha256("\0".join([*content, fingerprint, _SPEC, _BUILD, _RECIPE]).encode()).hexdigest()


def _write_group(folder: Path, name: str, packages: Sequence[Rpm]) -> None:
    (folder / "rpms").mkdir(parents=True)
    tree = folder / "tree"
    tree.mkdir()
    write_files((file for package in packages for file in package.files), tree)
    text = _SPEC.format(group=name) + "".join(package.spec() for package in packages)
    (folder / "group.spec").write_text(text, encoding="utf-8")
