"""Keys and known hosts: how this machine and its nodes trust one another, strictly."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable
from pathlib import Path

from gpunode.lab.errors import LabError
from gpunode.lab.state import write_whole


def client_key(folder: Path) -> Path:
    """Return the private key `id_ed25519` with which this machine enters the lab's nodes, made if it is absent."""
    return _key(folder / "id_ed25519", "gpunode-lab")


def prepare_host(folder: Path, name: str, authorized: Path) -> str:
    """Give a node its host key and authorized key in `folder`/ssh, and return the public host key (two words).

    The host key outlives the node, so that a node made anew is still the one that known_hosts tells of.
    """
    ssh = folder / "ssh"
    ssh.mkdir(parents=True, exist_ok=True)
    # sshd's StrictModes refuses keys below a folder that others can write.
    folder.chmod(0o755)
    ssh.chmod(0o755)
    key = _key(ssh / "ssh_host_ed25519_key", name)
    # Whoever logs in meanwhile is let in: each node that begins anew has all of a lab's written again.
    write_whole(ssh / "authorized_keys", _public(authorized).read_text(encoding="utf-8"))
    return " ".join(_public(key).read_text(encoding="utf-8").split()[:2])


def write_known_hosts(path: Path, hosts: Iterable[tuple[str, str]]) -> None:
    """Write a known_hosts file from pairs of address and public host key; whoever connects meanwhile finds it whole."""
    write_whole(path, "".join(f"{address} {key}\n" for address, key in hosts))


def ssh_command(folder: Path, address: str, user: str = "root", port: int = 22) -> list[str]:
    """Return the ssh command line that enters a node with the lab's own key and known hosts, and with nothing else."""
    return [
        "ssh",
        # The person's own configuration could add a jump host, other keys or a laxer check.
        *("-F", "none"),
        *("-i", str(folder / "id_ed25519")),
        *("-o", "IdentitiesOnly=yes"),
        *("-o", f"UserKnownHostsFile={_quoted(folder / 'known_hosts')}"),
        *("-o", "GlobalKnownHostsFile=/dev/null"),
        *("-o", "StrictHostKeyChecking=yes"),
        *("-o", "BatchMode=yes"),
        *("-o", "ConnectTimeout=10"),
        *("-p", str(port)),
        f"{user}@{address}",
    ]


def hand_to_caller(folder: Path) -> None:
    """Give what a client needs to the person behind sudo, so that pyinfra itself needs no root; else do nothing."""
    for name in ("id_ed25519", "id_ed25519.pub", "known_hosts", "nodes.json"):
        if (folder / name).exists():
            hand_over(folder / name)


def hand_over(path: Path) -> None:
    """Give one file to the person behind sudo; else do nothing."""
    user, group = os.environ.get("SUDO_UID", ""), os.environ.get("SUDO_GID", "")
    if os.geteuid() == 0 and user.isdigit() and group.isdigit():
        os.chown(path, int(user), int(group))


def rsa_key(path: Path) -> Path:
    """Return the private RSA key of that path in PEM form, made if it is absent."""
    if not path.exists():
        _run_keygen("-q", "-t", "rsa", "-b", "2048", "-m", "PEM", "-N", "", "-f", str(path))
    return path


def _key(path: Path, comment: str) -> Path:
    if not (path.exists() and _public(path).exists()):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        _run_keygen("-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(path))
    return path


def _run_keygen(*arguments: str) -> None:
    try:
        result = subprocess.run(["ssh-keygen", *arguments], capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise LabError("ssh-keygen is not installed: apt-get install openssh-client") from error
    if result.returncode:
        raise LabError(f"ssh-keygen failed and said: {(result.stderr or result.stdout).strip()}")


def _public(key: Path) -> Path:
    return key.with_name(key.name + ".pub")


def _quoted(path: Path) -> str:
    # UserKnownHostsFile takes several files, separated by spaces.
    return f'"{path}"'
