"""The control plane's programs and the kubelet: built once from Debian's source package, or those of a given folder."""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from gpunode.lab.cache import cache_dir, complete_or_nothing, locked, remove, remove_partial
from gpunode.lab.chroot import run, within, write
from gpunode.lab.errors import LabError
from gpunode.lab.image import debian_base
from gpunode.lab.preconditions import check_preconditions
from gpunode.lab.toolbox import run_in

Report = Callable[[str], None]

KUBERNETES = "1.20.2"
ETCD = "etcd"
NAMES = (ETCD, "kube-apiserver", "kube-controller-manager", "kube-scheduler")
_LONGEST_S = 3600
_ROOT = "root.partial"
# The tree is whole, with all that it needs of others; but for one file, which is generated from its comments.
_COMPILE = r"""
export PATH=/usr/lib/go-1.19/bin:$PATH HOME=/root GO111MODULE=off GOPATH=/go GOCACHE=/go/cache CGO_ENABLED=0
of=k8s.io/kubernetes
mkdir -p /go/src/$of
tar -xzf /sources/kubernetes_*.orig.tar.gz --strip-components=1 -C /go/src/$of
cd /go/src/$of
annotated=$(grep -rl --include='*.go' --exclude='*_test.go' '^// *+k8s:openapi-gen=true' pkg cmd staging/src/k8s.io |
  xargs -n1 dirname | sort -u | sed "s,^staging/src/,vendor/,; s,^,$of/,")
go build -o /go/openapi-gen ./vendor/k8s.io/kube-openapi/cmd/openapi-gen
/go/openapi-gen -i "$(echo "$annotated" | paste -sd,)" -p $of/pkg/generated/openapi -O zz_generated.openapi \
  -h hack/boilerplate/boilerplate.generatego.txt -r /go/violations
said=
for package in $of/vendor/k8s.io/component-base/version $of/vendor/k8s.io/client-go/pkg/version; do
  said="$said -X $package.gitVersion=v$KUBERNETES -X $package.gitMajor=1 -X $package.gitMinor=20"
done
nice -n 10 go build -trimpath -ldflags "-s -w $said" -tags providerless,dockerless -o /work/ \
"""
_BUILD = f"{_COMPILE}  ./cmd/kube-apiserver ./cmd/kube-controller-manager ./cmd/kube-scheduler\n"
_KUBELET = f"{_COMPILE}  ./cmd/kubelet\n"
# etcd is Debian's, and wants Debian's C library: this machine's own may be older.
_ETCD = """#!/bin/sh
of="${0%/*}/etcd-of-debian"
exec "$of/ld.so" --library-path "$of" "$of/etcd" "$@"
"""


def programs(report: Report, given: Path | None = None) -> Path:
    """Return a folder with the four programs: `given`, else the cache's, built there if need be; raise LabError."""
    if given is not None:
        missing = [name for name in NAMES if not os.access(given / name, os.X_OK)]
        if missing:
            raise LabError(f"--cluster-programs {given}: there is no program {', '.join(missing)} in it")
        return given.resolve()
    return _built(f"kubernetes-{KUBERNETES}-{_digest()}", report, _BUILD, etcd=True)


def kubelet(report: Report) -> Path:
    """Return the real kubelet of the same version, built into the cache if need be; raise LabError.

    It speaks to containerd alone: it is built without dockershim, and without clouds.
    """
    name = f"kubelet-{KUBERNETES}-{hashlib.sha256(_KUBELET.encode()).hexdigest()[:12]}"
    return _built(name, report, _KUBELET) / "kubelet"


def _built(name: str, report: Report, commands: str, *, etcd: bool = False) -> Path:
    """Return a folder of the cache with what the commands build, built if need be; `etcd`: with that beside it."""
    folder = cache_dir() / "cluster"
    wanted = folder / name
    with locked(cache_dir() / "cluster.lock"):
        folder.mkdir(exist_ok=True)
        remove_partial(folder)
        if not wanted.is_dir():
            check_preconditions()
            with complete_or_nothing(wanted) as partial:
                _build(partial, report, commands)
                if etcd:
                    _take_etcd(partial / _ROOT, partial)
                remove(partial / _ROOT)
    return wanted


def _digest() -> str:
    return hashlib.sha256(f"{_BUILD}\0{_ETCD}".encode()).hexdigest()[:12]


def _build(folder: Path, report: Report, commands: str) -> None:
    """Fill the folder with the programs that the commands build; what they are built in stays as `root.partial`."""
    started = time.monotonic()
    report(f"cluster: building Kubernetes {KUBERNETES} of Debian's sources (4 minutes and 2 GB for that time, once)")
    root = folder / _ROOT
    with debian_base(report) as base:
        run(["cp", "-a", "--reflink=auto", f"{base}/.", str(_made(root))], "copying the base image")
    _fetch(root)
    report(f"cluster: compiler, sources and etcd fetched, {time.monotonic() - started:.0f} s; compiling")
    done = run_in(root, folder, commands, timeout=_LONGEST_S, KUBERNETES=KUBERNETES)
    if done.returncode:
        last = "\n".join((done.stdout + done.stderr).splitlines()[-8:])
        raise LabError(f"Kubernetes {KUBERNETES} could not be built (exit code {done.returncode}). It said:\n{last}")
    report(f"cluster: Kubernetes {KUBERNETES} is built, {time.monotonic() - started:.0f} s")


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _fetch(root: Path) -> None:
    """Install what builds, and etcd, and fetch the sources; apt checks them against Debian's signature."""
    sources = root / "etc/apt/sources.list.d"
    for path in sources.glob("*.sources"):
        text = path.read_text(encoding="utf-8")
        write(sources / f"{path.stem}-src.sources", text.replace("Types: deb\n", "Types: deb-src\n"))
    write(root / "usr/sbin/policy-rc.d", "#!/bin/sh\nexit 101\n", 0o755)
    within(root, "apt-get", "-o", "APT::Update::Error-Mode=any", "update")
    within(root, "apt-get", "install", "-y", "--no-install-recommends", "golang-1.19-go", "etcd-server")
    (root / "sources").mkdir()
    within(root, "sh", "-c", "cd /sources && apt-get source --download-only kubernetes")
    if not list((root / "sources").glob(f"kubernetes_*really{KUBERNETES}.orig.tar.gz")):
        found = ", ".join(path.name for path in (root / "sources").glob("*.orig.tar.gz"))
        raise LabError(f"Debian's source package kubernetes is no longer {KUBERNETES}: there is {found or 'none'}")


def _take_etcd(root: Path, folder: Path) -> None:
    beside = _made(folder / "etcd-of-debian")
    for source, name in (
        ("usr/bin/etcd", "etcd"),
        ("lib/x86_64-linux-gnu/ld-linux-x86-64.so.2", "ld.so"),
        ("lib/x86_64-linux-gnu/libc.so.6", "libc.so.6"),
    ):
        shutil.copy2(root / source, beside / name)
        (beside / name).chmod(0o755)
    write(folder / ETCD, _ETCD, 0o755)
