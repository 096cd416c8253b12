"""pacman packages as data, and their building and signing, in a container that has bsdtar."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from gpunode.lab.errors import LabError
from gpunode.lab.packages.deb import Payload, write_files
from gpunode.lab.signing import public_key
from gpunode.lab.toolbox import run_in

_RECIPE = "1"
_PACKAGER = "gpunode lab <lab@gpunode.invalid>"
_BUILD = """
export GNUPGHOME=/root/gnupg; mkdir -m 700 "$GNUPGHOME"
gpg --batch --quiet --import /work/secret.asc
for folder in /work/tree/*/; do
  folder=${folder%/}
  file=/work/built/$(cat "$folder.name")
  (cd "$folder" && bsdtar --uid 0 --gid 0 --zstd -cf "$file" .PKGINFO $([ ! -f .INSTALL ] || echo .INSTALL) *)
  gpg --batch --quiet --local-user "$fingerprint" --detach-sign --output "$file.sig" "$file"
done
"""


class PkgError(LabError):
    """Say which packages could not be built, in the tools' words."""


@dataclass(frozen=True)
class Pkg:
    """Hold one package; `scripts` are bodies of the install script's functions (post_install ...)."""

    name: str
    version: str
    description: str
    depends: tuple[str, ...] = ()
    provides: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()
    replaces: tuple[str, ...] = ()
    files: tuple[Payload, ...] = ()
    scripts: tuple[tuple[str, str], ...] = ()
    backup: tuple[str, ...] = ()

    @property
    def filename(self) -> str:
        """Return the file name that a repository uses."""
        return f"{self.name}-{self.version}-x86_64.pkg.tar.zst"

    def pkginfo(self) -> str:
        """Return .PKGINFO."""
        lines = [
            f"pkgname = {self.name}",
            f"pkgbase = {self.name}",
            f"pkgver = {self.version}",
            f"pkgdesc = {self.description} (SIMULATED: a fixture of gpunode's lab)",
            "url = https://gpunode.invalid",
            "builddate = 1760000000",
            f"packager = {_PACKAGER}",
            f"size = {sum(len(file.content) for file in self.files)}",
            "arch = x86_64",
            *(f"depend = {item}" for item in self.depends),
            *(f"provides = {item}" for item in self.provides),
            *(f"conflict = {item}" for item in self.conflicts),
            *(f"replaces = {item}" for item in self.replaces),
            *(f"backup = {item}" for item in self.backup),
        ]
        return "\n".join(lines) + "\n"

    def install(self) -> str:
        """Return .INSTALL; empty where there is none."""
        return "".join(f"{name}() {{\n{body.strip()}\n}}\n" for name, body in self.scripts)


def build_pkgs(packages: Sequence[Pkg], cache: Path, root: Path, secret: Path) -> list[Path]:
    """Return the packages' files, each with its signature FILE.sig beside it; what the cache has is not built again.

    + root: a root filesystem with bsdtar and gpg
    + secret: the key that signs, as lab.signing keeps it

    Raises PkgError.
    """
    _, fingerprint = public_key(secret)
    place = cache / f"{_digest(packages, fingerprint)}.pkgs"
    if not place.is_dir():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as folder:
            work = Path(folder)
            shutil.copyfile(secret, work / "secret.asc")
            (work / "built").mkdir()
            for number, package in enumerate(packages):
                _write_tree(package, work / "tree" / str(number))
            done = run_in(root, work, _BUILD, fingerprint=fingerprint)
            if done.returncode:
                raise PkgError(f"cannot build pacman's packages: {(done.stderr or done.stdout).strip()}")
            (work / "built").rename(place)
    return [place / package.filename for package in packages]


def _digest(packages: Sequence[Pkg], fingerprint: str) -> str:
    content = [json.dumps(asdict(item), default=lambda raw: hashlib.sha256(raw).hexdigest()) for item in packages]
    return hashlib.sha256("\0".join([*content, fingerprint, _BUILD, _RECIPE]).encode()).hexdigest()


def _write_tree(package: Pkg, tree: Path) -> None:
    tree.mkdir(parents=True)
    tree.with_suffix(".name").write_text(package.filename)
    (tree / ".PKGINFO").write_text(package.pkginfo())
    if text := package.install():
        (tree / ".INSTALL").write_text(text)
    # bsdtar is given what there is by name, and a package without files would have none.
    (tree / "usr/share/licenses" / package.name).mkdir(parents=True)
    write_files(package.files, tree)
