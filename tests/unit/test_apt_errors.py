"""What apt and dpkg print when they fail, as cause and remedy. The lines are apt 2.6's and dpkg 1.21's own."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpunode.packages.apt_errors import explained

pytestmark = pytest.mark.pure

DEB = "http://mirror.example:8900/cuda/debian12/x86_64/./libnvidia-ml1_580.95.05-1_amd64.deb"
REPOSITORY = "http://mirror.example:8900/cuda/debian12/x86_64"
NO_PUBKEY = "The following signatures couldn't be verified because the public key is not available: NO_PUBKEY E956BBCB"
LOCKED = "dpkg: error: dpkg frontend lock was locked by another process with pid 1095"

SAID = {
    "Waiting for cache lock: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 81 "
    "(unattended-upgr)...": (
        "unattended-upgr (process 81) holds /var/lib/dpkg/lock-frontend", "wait until it has ended (`ps -fp 81`"
    ),
    "E: Could not get lock /var/lib/apt/lists/lock. It is held by process 7 (apt-get)": (
        "apt-get (process 7) holds /var/lib/apt/lists/lock", "ps -fp 7"
    ),
    LOCKED: ("process 1095 holds the lock of dpkg", "ps -fp 1095"),
    " cannot copy extracted data for './usr/bin/nvidia-smi' to '/usr/bin/nvidia-smi.dpkg-new': failed to write (No "
    "space left on device)": ("the disk is full: /usr/bin/nvidia-smi could not be", "`df -h /usr/bin/nvidia-smi`"),
    "E: You don't have enough free space in /var/cache/apt/archives/.": (
        "the disk is full: /var/cache/apt/archives/ could not be", "`df -h /var/cache/apt/archives/`"
    ),
    "tee: /var/lib/gpunode/x: No space left on device": ("/var/lib/gpunode/x could not be written", "free room"),
    "dpkg: error: unable to write: No space left on device": ("a disk of the node is full", "df -h / /var /boot"),
    "mv: cannot move 'a' to '/usr/bin/x': Read-only file system": ("read-only at /usr/bin/x", "disk errors"),
    f"E: Failed to fetch {DEB}  Hash Sum mismatch": (f"{DEB} is not the file that", "have mirror.example:8900 synchr"),
    f"E: Failed to fetch {DEB}  File has unexpected size (900 != 907). Mirror sync in progress? [IP: 10.0.0.1 80]": (
        f"{DEB} is not the file that", "do not install it by hand"
    ),
    f"E: Failed to fetch {DEB}  404  File not found [IP: 127.0.0.1 8900]": (f"{DEB} is gone (404", "run again"),
    f"E: Failed to fetch {DEB}  403  Forbidden [IP: 10.0.0.1 80]": ("mirror.example:8900 does not let the", "proxy"),
    f"E: Failed to fetch {DEB}  503  Service Unavailable": (f"mirror.example:8900 fails at {DEB}: 503", "mend it"),
    f"E: Failed to fetch {DEB}  Could not connect to mirror.example:8900 (10.0.0.1). - connect (111: Connection "
    "refused)": ("cannot be reached from the node: Could not connect to", f"`curl -I {DEB}`"),
    f"W: Failed to fetch {REPOSITORY}/InRelease  Temporary failure resolving 'mirror.example'": (
        "mirror.example:8900 cannot be reached from the node: Temporary failure resolving", "DNS"
    ),
    f"E: Failed to fetch {DEB}  Unable to connect to mirror.example:8900:": ("Unable to connect to", "firewall"),
    f"W: GPG error: {REPOSITORY}  InRelease: {NO_PUBKEY}": (
        f"the repository {REPOSITORY} is signed by the key E956BBCB,", "key_fingerprint in repositories"
    ),
    f"W: Failed to fetch {REPOSITORY}/InRelease  {NO_PUBKEY}": ("is signed by the key E956BBCB,", "do not trust that"),
    f"W: GPG error: {REPOSITORY}  InRelease: The following signatures were invalid: BADSIG 1234 x": (
        f"signature of the repository {REPOSITORY} is refused: The following signatures were invalid", "half updated"
    ),
    f"E: The repository '{REPOSITORY}  InRelease' is not signed.": (f"{REPOSITORY} is not signed", "have it signed"),
    f"E: The repository '{REPOSITORY}  Release' does not have a Release file.": (
        f"there is no repository at {REPOSITORY}", f"curl -I {REPOSITORY.rstrip('/')}/Release"
    ),
    "E: The repository 'http://mirror.example/debian bookworm Release' does not have a Release file.": (
        "there is no repository at http://mirror.example/debian:", "debian/dists/bookworm/Release` on the node"
    ),
    f"E: The repository '{REPOSITORY}  Release' is no longer signed.": ("is not signed, or no longer", "unsigned"),
    f"E: Release file for {REPOSITORY}/InRelease is not valid yet (invalid for another 3h 2min 1s). Updates for this "
    "repository will not be applied.": ("is not valid yet (invalid for another 3h", "clock (`date`)"),
    " nvidia-open : Depends: nvidia-kernel-open-dkms (= 580.82.07-1) but it is not installable": (
        "package nvidia-open needs nvidia-kernel-open-dkms (= 580.82.07-1), but it is not installable",
        "`apt-cache policy nvidia-kernel-open-dkms`",
    ),
    "               Depends: libnvidia-ml1 (= 2) but 1 is to be installed": (
        "(named above) needs libnvidia-ml1 (= 2), but 1 is to be installed", "apt-cache policy libnvidia-ml1"
    ),
    "E: Unable to locate package nvidia-opne": ("repositories have no nvidia-opne", "apt-cache madison"),
    "E: Version '9' for 'nvidia-open' was not found": ("have no nvidia-open at 9", "madison"),
    "E: Package 'nvidia-open' has no installation candidate": ("repositories have no nvidia-open", "madison"),
    "E: dpkg was interrupted, you must manually run 'dpkg --configure -a' to correct the problem. ": (
        "dpkg was interrupted at its work before", "run again, which finishes it"
    ),
    " trying to overwrite '/usr/bin/nvidia-smi', which is also in package nvidia-smi 535.1": (
        "/usr/bin/nvidia-smi would be overwritten: it is in package nvidia-smi", "remove nvidia-smi"
    ),
    " installed nvidia-dkms-580 package post-installation script subprocess returned error exit status 10": (
        "a script of package nvidia-dkms-580 failed (post-installation script", "make.log"
    ),
    "E: Sub-process /usr/bin/dpkg exited unexpectedly": ("dpkg was killed at its work", "out-of-memory killer"),
    "E: Sub-process /usr/bin/dpkg received a segmentation fault.": ("(received a segmentation fault)", "journalctl"),
}  # fmt: skip


@pytest.mark.parametrize("line", SAID)
def test_what_apt_says_is_told_with_cause_and_remedy(line: str) -> None:
    cause, remedy = SAID[line]
    (found,) = explained(["Reading package lists...", line, "E: Sub-process /usr/bin/dpkg returned an error code (1)"])
    assert cause in found.cause
    assert remedy in found.remedy


def test_a_cause_is_told_once_and_what_only_follows_from_it_not_at_all() -> None:
    lines = [line for line in SAID if "No space left" in line or "subprocess" in line or "exited unexpect" in line]
    assert len(lines) > 3
    (found,) = explained(lines)
    assert "/usr/bin/nvidia-smi could not be written" in found.cause


def test_several_causes_are_told_in_their_order_and_three_at_most() -> None:
    lines = [
        LOCKED,
        "E: Unable to locate package a",
        f"E: Failed to fetch {DEB}  404  Not Found",
        "Read-only file system",
    ]
    told = [item.cause[:20] for item in explained(lines)]
    assert told == ["process 1095 holds t", "the node's repositor", f"{DEB[:20]}"]


@pytest.mark.parametrize(
    "line",
    [
        "Setting up nvidia-open (580.95.05-1) ...",
        "E: Unable to fetch some archives, maybe run apt-get update or try with --fix-missing?",
        "Err:1 http://mirror.example/ x InRelease",
        "0 upgraded, 0 newly installed, 0 to remove and 18 not upgraded.",
    ],
)
def test_what_is_no_cause_is_not_explained(line: str) -> None:
    assert explained([line]) == ()


@given(st.lists(st.text(max_size=300) | st.sampled_from(list(SAID)).flatmap(lambda line: st.text().map(line.__add__))))
def test_whatever_is_printed_is_explained_in_one_line_each_and_never_an_error(lines: list[str]) -> None:
    found = explained(lines)
    assert len(found) <= 3
    for item in found:
        assert item.cause and item.remedy
        assert len((item.cause + item.remedy).splitlines()) == 1
