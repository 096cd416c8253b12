"""The faults: how each is put on a node, at which moment it strikes, how its cause is mended, and what must be said.

A fault that strikes in the middle is a script that apt or dpkg of the node calls by their own hooks; once it has struck
it is /run/struck. SIMULATED: the repository's own faults are files laid over the mirror that each node serves itself.
"""

from __future__ import annotations

import shlex
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gpunode.lab.cache import cache_dir
from gpunode.lab.nodes import Node
from gpunode.lab.packages.driver import BROKEN_VERSION
from gpunode.lab.repository import index_flat
from gpunode.lab.signing import key_file, sign_releases
from gpunode.lab.world.apt import release_fields
from tests.molecule.conftest import out
from tests.molecule.interruption.faults import CUT

OLD, NEW = "580.82.07", "580.95.05"
# How long apt waits where the lock is never freed, in place of five minutes.
LOCK_SECONDS = 5
# How the struck run leaves the node: as it was before, as desired, or for the next run to heal.
AS_BEFORE, DONE, UNFINISHED = "as before", "done", "unfinished"
MIRROR = "/srv/gpunode-lab/mirror"
_LIBRARY = "libnvidia-ml1_{version}-1_amd64.deb"

_HOOKS = r"""
echo 'APT::Update::Post-Invoke {"[ ! -x /run/after-refresh ] || /run/after-refresh $PPID";};' \
  > /etc/apt/apt.conf.d/99lab-fault
echo 'pre-invoke=[ ! -x /run/at-dpkg ] || /run/at-dpkg $PPID' > /etc/dpkg/dpkg.cfg.d/lab-fault
"""
_NO_HOOKS = "rm -f /etc/apt/apt.conf.d/99lab-fault /etc/dpkg/dpkg.cfg.d/lab-fault /run/after-refresh /run/at-dpkg"
# Only the refresh of all lists counts: that of one repository alone (when it is trusted) reads no other.
_AFTER_REFRESH = """#!/bin/sh
tr '\\0' ' ' < "/proc/$1/cmdline" | grep -q sourceparts && exit 0
mv /run/after-refresh /run/struck
{body}
"""
_AT_DPKG = """#!/bin/sh
tr '\\0' ' ' < "/proc/$1/cmdline" | grep -q -e {action} || exit 0
mv /run/at-dpkg /run/struck
{body}
exit 0
"""
# A mirror of the node's own: what is changed in it is seen by no other node.
_OVERLAY = f"""
set -e; mkdir -p /run/mirror/upper /run/mirror/work
mount -t overlay -o lowerdir={MIRROR},upperdir=/run/mirror/upper,workdir=/run/mirror/work none {MIRROR}
"""
_NO_OVERLAY = f"umount -l {MIRROR}; rm -rf /run/mirror"
# Named as the real one is. Argument: for how many seconds it holds the lock on, once another waits for it.
_HOLDER = """systemd-run --quiet --collect --unit=lab-lock python3 -c '
import fcntl, pathlib, sys, time
open("/proc/self/comm", "w").write("unattended-upgr")
lock = open("/var/lib/dpkg/lock-frontend", "w"); fcntl.lockf(lock, fcntl.LOCK_EX)
def waits(path):
    try: return b"apt-get" in path.read_bytes() and path.read_bytes().endswith(b"\\0check\\0")
    except OSError: return False
while not any(map(waits, pathlib.Path("/proc").glob("[0-9]*/cmdline"))): time.sleep(0.2)
open("/run/waited", "w"); time.sleep(float(sys.argv[1]))' """
# A file system of its own, with room for some of the packages.
_FULL_USR = """
if [ ! -d /run/usr/upper ]; then
  mkdir -p /run/usr; mount -t tmpfs none /run/usr; mkdir /run/usr/upper /run/usr/work
  mount -t overlay -o lowerdir=/usr,upperdir=/run/usr/upper,workdir=/run/usr/work none /usr
fi
mount -o remount,size=$(($(df -k --output=used /run/usr | tail -n 1) + 400))k /run/usr
"""
# Nothing is needed of the distribution's own archive, whose lists are long to read.
ALONE_WITH_THE_DRIVER = "rm -rf /etc/apt/sources.list /etc/apt/sources.list.d/* /var/lib/apt/lists/*"


@dataclass(frozen=True)
class Fault:
    """Hold one fault.

    says: words that the failed run must print for this node, of cause and of remedy, `|` between those of which one
        will do; none where the run must go through
    ends: how the node is left
    boots: whether the node comes back from a boot
    now: shell text on the node before the run
    after_refresh, at_unpack, at_configure: shell text that strikes in the run, at that moment
    publish: what is done to the node's repository before the run
    mend, republish: what takes the cause away after it
    version: what is asked for in the struck run, where that itself is the fault
    """

    name: str
    says: tuple[str, ...] = ()
    now: str = ""
    after_refresh: str = ""
    at_unpack: str = ""
    at_configure: str = ""
    publish: Callable[[Node, str], None] | None = None
    mend: str = "true"
    republish: Callable[[Node, str], None] | None = None
    version: str | None = None
    ends: str = AS_BEFORE
    boots: bool = False

    def strike(self, node: Node, version: str) -> None:
        """Put the fault on a node of which `version` is going to be asked."""
        out(node, "rm -f /run/struck /run/waited")
        out(node, self.now.replace("{version}", version) or "true")
        if self.publish:
            self.publish(node, version)
        scripts = {}
        if self.after_refresh:
            scripts["/run/after-refresh"] = _AFTER_REFRESH.replace("{body}", self.after_refresh)
        for action, body in (("--unpack", self.at_unpack), ("--configure", self.at_configure)):
            if body:
                scripts["/run/at-dpkg"] = _AT_DPKG.replace("{body}", body).replace("{action}", action)
        for path, text in scripts.items():
            text = text.replace("{version}", version)
            out(node, f"{_HOOKS}printf %s {shlex.quote(text)} > {path} && chmod 755 {path}")

    def mended(self, node: Node, version: str) -> None:
        """Take the cause away; what the fault has done to the node stays."""
        out(node, f"{_NO_HOOKS}; {self.mend}")
        if self.republish:
            self.republish(node, version)


def publish(node: Node, key: str = "repository", without: str = "") -> None:
    """Let the node's repository have a new index, signed by one of the lab's keys, that leaves one package out."""
    source = cache_dir() / "mirror/cuda/debian12/x86_64"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for package in source.glob("*.deb"):
            if package.name != without:
                shutil.copyfile(package, folder / package.name)
        sign_releases(key_file(cache_dir() / "keys", key), [index_flat(folder, release_fields())])
        shared = node.folder / "index"
        shutil.rmtree(shared, ignore_errors=True)
        shared.mkdir()
        for each in ("Packages", "Release", "InRelease", "Release.gpg"):
            shutil.copyfile(folder / each, shared / each)
    out(node, f"for folder in {MIRROR}/cuda/*/x86_64; do cp /etc/gpunode-lab/index/* $folder/; done")


_LOST = ("the connection broke", "run the command again when the node answers")
_LIBRARY_URL = "/libnvidia-ml1_{version}-1_amd64.deb"

FAULTS = (
    Fault(
        "repository gone", ("no connection to its server comes about", "whether the server is up"),
        after_refresh="systemctl stop lab-mirror", mend="systemctl start lab-mirror",
    ),
    Fault(
        "package file gone", (f"{_LIBRARY_URL} is not there: its server answers 404", "have the mirror synchronized"),
        now=_OVERLAY, after_refresh=f"rm {MIRROR}/cuda/*/x86_64/{_LIBRARY}", mend=_NO_OVERLAY,
    ),
    Fault(
        "disk full", ("the disk is full: /usr/bin/nvidia-smi could not be written", "df -h /usr/bin/nvidia-smi"),
        at_unpack=_FULL_USR, mend="mount -o remount,size=40g /run/usr",
    ),
    Fault(
        "dpkg killed", ("dpkg was killed at its work (exited unexpectedly)", "out-of-memory killer"),
        at_configure='kill -9 "$1"',
    ),
    Fault(
        "lock held",
        ("unattended-upgr (process ", "holds /var/lib/dpkg/lock-frontend", "wait until it has ended (`ps -fp ",
         "nothing was changed"),
        now=f"""echo 'DPkg::Lock::Timeout "{LOCK_SECONDS}";' > /etc/apt/apt.conf.d/99lab-lock; {_HOLDER} 3600""",
        mend="systemctl stop lab-lock; rm /etc/apt/apt.conf.d/99lab-lock",
    ),
    Fault("lock held for a while", after_refresh=f"{_HOLDER} 2; sleep 0.5", ends=DONE),
    Fault(
        "hash mismatch", (f"{_LIBRARY_URL} is not the file that the repository's signed index names", "synchronized"),
        now=f"{_OVERLAY} for file in {MIRROR}/cuda/*/x86_64/{_LIBRARY}; do "
        "printf altered | dd of=$file bs=1 seek=100 conv=notrunc status=none; done",
        mend=_NO_OVERLAY,
    ),
    Fault(
        "node rebooted",
        ("was stopped from outside: the node goes down|the connection broke", f"run again when the node|{_LOST[1]}"),
        at_configure="systemctl --no-block reboot; sleep 60", boots=True,
    ),
    Fault(
        "power lost", _LOST, at_configure="systemctl reboot --force --force; sleep 60", boots=True, ends=UNFINISHED
    ),
    Fault("connection cut", _LOST, at_configure=f"{CUT}; sleep 2", ends=DONE),
    Fault(
        "wrong key", ("is signed by the key ", "none that its entry trusts", "key_fingerprint in repositories"),
        now=_OVERLAY, publish=lambda node, _: publish(node, "wrong"), mend=_NO_OVERLAY,
    ),
    Fault(
        "package missing", ("the node's repositories have no libnvidia-ml1 at {version}-1", "nothing was changed",
                            "have the mirror synchronized"),
        now=_OVERLAY,
        publish=lambda node, version: publish(node, without=_LIBRARY.replace("{version}", version)),
        republish=lambda node, _: publish(node),
    ),
    Fault(
        "does not load", ("does not load|cannot be loaded", "could not insert 'nvidia': Invalid argument",
                          "not tried again until"),
        version=BROKEN_VERSION,
    ),
)  # fmt: skip
