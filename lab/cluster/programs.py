"""The control plane's programs, the kubelet and the lab's device plugin: built once, of Debian's source package.

One build and one cache of Go's compiler for all of them: most packages of a kubelet are an API server's, too.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from collections.abc import Callable, Sequence
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
KUBELET, PLUGIN = "kubelet", "gpunode-lab-device-plugin"
# Of Debian's containernetworking-plugins: what a pod's own network takes.
CNI = ("bridge", "host-local", "loopback")
_CNI_FOLDER = "cni"
_OF_A_NODE = (KUBELET, PLUGIN, *(f"{_CNI_FOLDER}/{name}" for name in CNI))
_PACKAGES = ("golang-1.19-go", "etcd-server", "containernetworking-plugins")
_LONGEST_S = 3600
_ROOT = "root.partial"
# The tree is whole, with all that it needs of others; but for one file, which is generated from its comments.
_BUILD = rf"""
export PATH=/usr/lib/go-1.19/bin:$PATH HOME=/root GO111MODULE=off GOPATH=/go GOCACHE=/go/cache CGO_ENABLED=0
of=k8s.io/kubernetes
mkdir -p /go/src/$of
tar -xzf /sources/kubernetes_*.orig.tar.gz --strip-components=1 -C /go/src/$of
cd /go/src/$of
mkdir cmd/{PLUGIN}
mv /work/*.go cmd/{PLUGIN}/
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
  ./cmd/kube-apiserver ./cmd/kube-controller-manager ./cmd/kube-scheduler ./cmd/{KUBELET} ./cmd/{PLUGIN}
"""
_PLUGIN_SOURCE = Path(__file__).parent / "device_plugin"
# etcd is Debian's, and wants Debian's C library: this machine's own may be older.
_ETCD = """#!/bin/sh
of="${0%/*}/etcd-of-debian"
exec "$of/ld.so" --library-path "$of" "$of/etcd" "$@"
"""


def programs(report: Report, given: Path | None = None) -> Path:
    """Return a folder with the control plane's four: `given`, else the cache's, built there if need be.

    Raise LabError.
    """
    return _checked(given, NAMES) if given is not None else _built(report)


def node_programs(report: Report, given: Path | None = None) -> Path:
    """Return a folder with what a node with a real kubelet takes: kubelet, device plugin, and `cni`; raise LabError.

    The kubelet speaks to containerd alone: it is built without dockershim, and without clouds.
    """
    return _checked(given, _OF_A_NODE) if given is not None else _built(report)


def _checked(given: Path, names: Sequence[str]) -> Path:
    missing = [name for name in names if not os.access(given / name, os.X_OK)]
    if missing:
        raise LabError(f"--cluster-programs {given}: there is no program {', '.join(missing)} in it")
    return given.resolve()


def _built(report: Report) -> Path:
    """Return the cache's folder with all programs, built if need be."""
    folder = cache_dir() / "cluster"
    wanted = folder / f"kubernetes-{KUBERNETES}-{_digest()}"
    with locked(cache_dir() / "cluster.lock"):
        folder.mkdir(exist_ok=True)
        remove_partial(folder)
        if not wanted.is_dir():
            check_preconditions()
            with complete_or_nothing(wanted) as partial:
                _build(partial, report)
                _take_etcd(partial / _ROOT, partial)
                _take_cni(partial / _ROOT, partial)
                remove(partial / _ROOT)
    return wanted


def _sources() -> list[Path]:
    """Return the files of the lab's own device plugin."""
    return sorted(_PLUGIN_SOURCE.glob("*.go"))


def _digest() -> str:
    texts = (_BUILD, _ETCD, *CNI, *(path.read_text(encoding="utf-8") for path in _sources()))
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:12]


def _build(folder: Path, report: Report) -> None:
    """Fill the folder with the programs; what they are built in stays as `root.partial`."""
    started = time.monotonic()
    report(f"cluster: building Kubernetes {KUBERNETES} of Debian's sources (5 minutes and 2 GB for that time, once)")
    root = folder / _ROOT
    with debian_base(report) as base:
        run(["cp", "-a", "--reflink=auto", f"{base}/.", str(_made(root))], "copying the base image")
    _fetch(root)
    report(f"cluster: compiler, sources and etcd fetched, {time.monotonic() - started:.0f} s; compiling")
    for source in _sources():
        shutil.copy(source, folder)
    done = run_in(root, folder, _BUILD, timeout=_LONGEST_S, KUBERNETES=KUBERNETES)
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
    within(root, "apt-get", "install", "-y", "--no-install-recommends", *_PACKAGES)
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


def _take_cni(root: Path, folder: Path) -> None:
    beside = _made(folder / _CNI_FOLDER)
    for name in CNI:
        shutil.copy2(root / "usr/lib/cni" / name, beside / name)
