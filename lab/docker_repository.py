"""Docker's repository with docker itself in it, which is built for those alone who ask for it."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

from gpunode.lab.cache import complete_or_nothing, locked, remove_partial
from gpunode.lab.errors import LabError
from gpunode.lab.packages import docker
from gpunode.lab.repository import DOCKER_POOL, index_docker
from gpunode.lab.signing import key_file, public_key, sign_releases
from gpunode.lab.world.docker import docker_packages


def build_docker_repository(cache: Path) -> str:
    """Build the repository in the cache's mirror, unless it is there; return its path within what the nodes serve.

    It has docker-ce and docker-ce-cli beside the mirror's own containerd.io. Raises LabError, DebError or SigningError
    if a tool is missing or fails.
    """
    mirror = cache / "mirror"
    containerd = sorted((mirror / "docker/debian" / DOCKER_POOL).glob("containerd.io_*.deb"))
    if not containerd:
        raise LabError(
            f"{mirror} has no containerd.io, without which docker-ce cannot be installed: see `gpunode lab up`"
        )
    key = key_file(cache / "keys", "repository")
    made_of = [Path(__file__).read_bytes(), Path(docker.__file__).read_bytes(), public_key(key)[1].encode()]
    made_of += [repr(docker_packages()).encode()]
    digest = hashlib.sha256(b"\0".join([*made_of, *(path.name.encode() for path in containerd)])).hexdigest()[:16]
    # Beside what the mirror itself has, so that running nodes serve it too.
    folder = mirror / f"docker-ce-{digest}"
    with locked(cache / "docker-repository.lock"):
        if not folder.is_dir():
            remove_partial(mirror)
            with complete_or_nothing(folder) as draft:
                pool = draft / "debian" / DOCKER_POOL
                pool.mkdir(parents=True)
                docker.build_docker_ce(pool)
                for package in containerd:
                    shutil.copyfile(package, pool / package.name)
                sign_releases(key, [index_docker(draft / "debian")])
    return f"{folder.name}/debian"
