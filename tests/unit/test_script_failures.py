"""Every script in templates/scripts ends with a cause where one of its programs fails.

SIMULATED: all programs but the coreutils, and every file outside the test's folder; sh is real.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from gpunode.base.explanations import failure
from gpunode.base.shell_file import script_file
from gpunode.components.mig.boot import FUNCTIONS as MIG
from gpunode.facts.families.pacman import LOCK
from gpunode.facts.system import INITRAMFS
from gpunode.operations.apt import APT_GET, HOLD, NOT_OLDER, READ_LISTS
from gpunode.operations.driver_transaction import FETCH, INSTALLER, RUNFILE
from gpunode.operations.families import FAMILIES
from gpunode.operations.repositories import PINNED_KEY
from gpunode.operations.script import STANDARD_INPUT, encoded, script
from gpunode.operations.transaction import Transaction, transaction_text

pytestmark = pytest.mark.simulated

SCRIPTS = Path(__file__).parents[2] / "templates/scripts"
# What a test runs as it is: programs that neither reach another machine nor change more than the files they are given.
REAL = [
    "awk",
    "basename",
    "base64",
    "cat",
    "chmod",
    "chown",
    "cmp",
    "cp",
    "cut",
    "date",
    "dirname",
    "env",
    "false",
    "find",
    "getent",
    "grep",
    "head",
    "id",
    "install",
    "ln",
    "ls",
    "mkdir",
    "mkfifo",
    "mktemp",
    "mv",
    "paste",
    "printf",
    "ps",
    "pwd",
    "readlink",
    "rm",
    "rmdir",
    "sed",
    "seq",
    "sha256sum",
    "sh",
    "sort",
    "sync",
    "tail",
    "tar",
    "tee",
    "test",
    "touch",
    "tr",
    "true",
    "uname",
    "uniq",
    "wc",
    "xargs",
]
# Program -> what it does where it does not fail; every other one prints nothing.
STANDING_IN = {
    "apt-cache": 'echo "x | 1-1 | repository"',
    "apt-config": "echo lock_seconds=0",
    "containerd": "echo '[plugins]'",
    "ctr": "echo 'io.containerd.grpc.v1 cri linux/amd64 ok'",
    "curl": 'while [ $# -gt 0 ]; do case "$1" in --output) echo key > "$2";; esac; shift; done; printf 200',
    "dnf": "case \"$*\" in *repoquery*) echo '1 0:1-1';; *) echo 'Transaction Summary';; esac",
    "dnf5": "case \"$*\" in *repoquery*) echo '1 0:1-1';; *) echo 'Transaction Summary';; esac",
    "docker": "echo DefaultRuntime=nvidia",
    "dpkg-query": "echo 'installed 1-1'",
    "gpg": 'while [ $# -gt 0 ]; do case "$1" in --output) echo key > "$2";; esac; shift; done',
    "modinfo": "echo 1",
    "nvidia-ctk": 'case "$*" in *--output=*) echo kind: nvidia.com/gpu libcuda.so.1 > "${*##*--output=}";; esac',
    "nvidia-smi": "echo 'GPU 0: x (UUID: GPU-1)'",
    "pacman": "case \"$*\" in *-Sl*) echo 'core x 1-1';; *-Q*) echo 'x 1-1';; esac",
    "pacman-conf": "echo FOLDER/var/lib/pacman",
    "rpm": "echo 1-1",
    "stat": "case \"$*\" in *'%u %g %A'*) echo '0 0 drwxr-xr-x';; *) exec /usr/bin/stat \"$@\";; esac",
    "sleep": 'read -r up _ < FOLDER/proc/uptime; echo "$((${up%%.*} + 20)).0 0" > FOLDER/proc/uptime',
    "systemctl": 'case "$*" in *MainPID*) echo MainPID=1;; *is-active*) echo active;; esac',
    "systemd-run": 'for each; do last=$each; done; sh -c "$last"',
    "timeout": 'while :; do case "$1" in -k) shift 2;; -*) shift;; [0-9]*) shift;; *) break;; esac; done; exec "$@"',
    "zypper": 'case "$*" in *search*) echo \'<solvable name="x" edition="1-1"/>\';; *) echo \'Nothing to do\';; esac',
}
KNOWN = [
    "apt-get",
    "apt-mark",
    "crictl",
    "crio",
    "dcgmi",
    "depmod",
    "dkms",
    "dmesg",
    "dpkg",
    "dpkg-deb",
    "dracut",
    "gpgconf",
    "journalctl",
    "ldconfig",
    "ldd",
    "lsinitrd",
    "lsinitramfs",
    "mkinitcpio",
    "lsinitcpio",
    "mknod",
    "modprobe",
    "mokutil",
    "nvidia-imex-ctl",
    "nvidia-modprobe",
    "nvidia-uninstall",
    "rmmod",
    "scontrol",
    "slurmctld",
    "slurmd",
    "sysctl",
    "update-alternatives",
    "update-initramfs",
    "wget",
    "ctr",
    "dockerd",
]
VARIABLES = {
    **dict.fromkeys(
        [
            "aside",
            "before_install",
            "before_uninstall",
            "blacklist",
            "boot",
            "by",
            "cleared",
            "cleared_read",
            "cleared_text",
            "controller",
            "cpus",
            "disable",
            "holding",
            "pin",
            "enable",
            "ended",
            "expected",
            "forbidden",
            "going",
            "gone",
            "goal",
            "gres",
            "hold",
            "included",
            "install",
            "instead",
            "image",
            "kept",
            "layout",
            "loaded",
            "lacking",
            "modes",
            "needs",
            "nvml",
            "others",
            "own_files",
            "policy",
            "reads",
            "record",
            "removed",
            "repository",
            "reset",
            "rest",
            "restart",
            "resume",
            "rollback",
            "rules",
            "sources",
            "stop_units",
            "streamed",
            "stopped",
            "stream",
            "told",
            "unhold",
            "units",
            "uninstall",
            "watch",
        ],
        "",
    ),
    **{"attempt": "1 x", "fingerprint": "A" * 40, "foreign": "^$", "own": "^nvidia", "name": "x", "state": "ok"},
    **{"key_url": "http://mirror.example/key", "url": "http://mirror.example/x.run", "sha256": "0" * 64},
    **{"setting": "driver.runfile_sha256", "program": "x", "unit": "x.service", "plugin": "x", "act": "restart"},
    **{"release": "6.1.0", "releases": "6.1.0", "kernel": "6.1.0", "upstream": "1", "version": "1", "wanted": "1"},
    **{
        "mark": "# gpunode",
        "stale": "",
        "proof": "loaded",
        "saved": "debs",
        "dashed": "1",
        "manager": "dnf",
        "health": "",
    },
    **{"timeout": "30", "stays": "1", "ready": "READY", "up": "UP", "ready_seconds": "2", "domain_seconds": "2"},
    **{
        "mode": "EXCLUSIVE_PROCESS",
        "shown": "Exclusive_Process",
        "node": "n",
        "option": "--config=x",
        "transaction": "driver",
    },
    **{
        "suffix": ".gpunode-disabled",
        "reason": "is another",
        "text": "Types: deb",
        "read": "unread",
        "devices": "",
        "tasks": "",
    },
    **{
        "arguments": "x=1-1",
        "names": "x",
        "timer": "x.timer",
        "service": "x.service",
        "gate": "g.service",
        "upgrade": "up",
    },
}
# Variables that are paths, below the test's folder.
PATHS = {
    "binary": "bin/containerd",
    "config": "etc/x/config.toml",
    "drop_ins": "etc/x/conf.d",
    "root": "driver",
    "etc": "etc/slurm",
    "folder": "var/lib/gpunode/transactions",
    "installer_log": "var/log/x.log",
    "key": "etc/keys/x.asc",
    "keyring": "usr/share/keyrings/x.gpg",
    "LOCKS": "etc/zypp/locks",
    "logs": "var/log/pods",
    "manifest": "etc/k/s.yaml",
    "nodes": "etc/imex/nodes",
    "note": "run/gpunode/power",
    "noted": "run/gpunode/kubelet",
    "notes": "run/gpunode",
    "path": "etc/file",
    "proc": "proc",
    "record_path": "var/lib/gpunode/mig",
    "runfile": "var/lib/gpunode/x.run",
    "runfiles": "var/lib/gpunode/runfiles",
    "script": "usr/local/lib/gpunode/s",
    "script_path": "usr/local/lib/gpunode/m",
    "source": "etc/apt/x.sources",
    "stamp": "var/lib/gpunode/x.stamp",
    "target": "etc/cdi/nvidia.yaml",
    "toolkit": "usr/local/cuda-1",
    "unit_path": "etc/systemd/system/x.service",
    "unproven": "var/lib/gpunode/unproven",
    "folder_of_settings": "etc/gpunode/mps",
    "index_sources": "etc/apt/sources.list.d",
}


@dataclass(frozen=True)
class Case:
    """Shell text as an operation sends it, by the names of the scripts that it has."""

    scripts: str
    text: str = ""
    arguments: tuple[str, ...] = ()
    variables: dict[str, str] = field(default_factory=dict)
    standard_input: str = ""
    transaction: bool = False


def _sent(command: Any) -> str:
    """Return the text of a command's script."""
    return next(text for bit in command.bits if (text := str(getattr(bit, "obj", ""))).startswith("set -eu"))


def _install(manager: str) -> str:
    return _sent(FAMILIES[manager].install(["x=1"], ""))


def _finish(manager: str) -> str:
    return _sent(next(iter(FAMILIES[manager].finish())))


def _driver(manager: str, change: str) -> str:
    return FAMILIES[manager].functions + RUNFILE + script_file("nouveau", "driver", change)


FILES = {"files": f"/etc/x/config.toml {encoded('x')} unread", "staged": encoded("x")}
ONE = ("x=1",)
CASES = (
    Case("agent_remove", arguments=("/etc/gpunode/agent",)),
    Case("apt_get apt_mark", HOLD, variables={"hold": "x", "unhold": "y"}),
    Case("apt_get apt_finish", _finish("apt")),
    Case("apt_get apt_lists index_date apt_refresh refuse_removal apt_install", _install("apt"), ONE),
    Case(
        "fetching pinned_key apt_get apt_lists index_date apt_trust",
        PINNED_KEY + APT_GET + READ_LISTS + NOT_OLDER + script_file("apt_trust"),
    ),
    Case("keep_beside apt_untrust swap", arguments=("A" * 40,)),
    Case("cdi cdi_generate"),
    Case("service_state cdi cdi_refresh"),
    Case("placing keeping clear_leftovers", arguments=("driver",)),
    *(Case(f"runtime {name}", transaction=True, variables=FILES) for name in ("containerd", "docker", "crio")),
    *(Case(f"{name} runtime_check", variables=FILES) for name in ("containerd", "docker", "crio")),
    Case("runfile_installer owned cuda", INSTALLER + script_file("owned", "cuda"), transaction=True),
    Case("cuda_link"),
    Case("service_state dcgm", variables={"restart": "nvidia-dcgm", "stopped": "x", "watch": "yes"}),
    Case("device_links", variables={"devices": "/dev/null"}),
    Case("dnf_finish", _finish("dnf")),
    Case("dnf5_run dnf5_finish", _finish("dnf5")),
    Case("rpm refuse_removal rpm_install dnf_refresh dnf_install", _install("dnf"), ONE),
    Case("rpm refuse_removal rpm_install dnf5_refresh dnf5_run dnf5_install", _install("dnf5"), ONE),
    Case("rpm refuse_removal rpm_install zypper zypper_read zypper_refresh zypper_install", _install("zypper"), ONE),
    *(
        Case(f"{more} reinstall", _sent(FAMILIES[manager].reinstall(["/usr/bin/x"], "")), ("/usr/bin/x",))
        for manager, more in (
            ("apt", "apt_reinstall"),
            ("dnf", "rpm_owned"),
            ("dnf5", "rpm_owned"),
            ("zypper", "rpm_owned zypper_reinstall"),
            ("pacman", "pacman_reinstall"),
        )
    ),
    *(
        Case(
            f"{manager}_driver runfile_installer runfile nouveau driver driver_packages" + more,
            _driver(manager, "driver_packages"),
            transaction=True,
        )
        for manager, more in (
            ("apt", " apt_get apt_mark"),
            ("dnf", " rpm rpm_driver"),
            ("dnf5", " rpm rpm_driver"),
            ("zypper", " rpm rpm_driver"),
            ("pacman", ""),
        )
    ),
    Case("driver_removal", _driver("apt", "driver_removal"), transaction=True),
    Case("driver_runfile", _driver("apt", "driver_runfile"), transaction=True),
    Case("nouveau driver_load"),
    Case("driver_peermem"),
    Case("service_state imex_start"),
    Case("service_state service_run", variables={"unit": "x.service", "steps": "enable start"}),
    Case("imex_stop", variables={"disable": "yes"}),
    Case("initramfs", INITRAMFS + script_file("initramfs"), transaction=True),
    Case("kernel_headers", "add() { rpm --add; }" + script_file("kernel_headers")),
    Case("kubelet", transaction=True, variables={"path": "/etc/file", "text": encoded("x")}),
    Case(
        "mig_asking mig_holders mig_creating mig_reaching mig_cdi mig",
        MIG + script_file("mig"),
        transaction=True,
        variables={
            "goal": "GPU-1 on 1g.10gb:0=1",
            "name_of_unit": "gpunode-mig-layout",
            "unit_text": encoded("x"),
            "script_text": encoded("x"),
            "unit_read": "unread",
            "script_read": "unread",
            "record_read": "unread",
        },
    ),
    Case("mig_forget"),
    Case(
        "mps_modes mps",
        transaction=True,
        variables={"units": "nvidia-mps", "restart": "nvidia-mps", "modes": "0", "written": "", "read": ""},
    ),
    Case("pacman_finish", LOCK + script_file("pacman_finish")),
    Case("pacman_unlocked pacman_files pacman_refresh pacman_install", _install("pacman"), ONE),
    Case(
        "placing replace_file",
        script_file("placing") + STANDARD_INPUT + script_file("replace_file"),
        standard_input="x",
    ),
    Case(
        "power_apply power",
        script_file("power_apply") + STANDARD_INPUT + script_file("power"),
        variables={"tasks": "00000000:01:00.0 limit 300.00", "enable": "yes"},
        standard_input="x",
    ),
    Case("reboot"),
    Case("fetching runfile_fetch", FETCH),
    Case("rpm_trust", PINNED_KEY + script_file("rpm_trust")),
    Case("scheduler", transaction=True, variables={"written": encoded("x"), "manifest_read": "unread", "path": ""}),
    Case("slurm", transaction=True, variables={"restart": "yes", "written": "", "read": ""}),
    Case(
        "transaction_unit transaction_run",
        script_file("transaction_unit") + STANDARD_INPUT + script_file("transaction_run"),
        standard_input=script("true"),
    ),
    Case(
        "transaction_unit transaction_undo transaction_give_up",
        script_file("transaction_unit", "transaction_undo", "transaction_give_up") + '\nexit "$code"',
    ),
    Case("transaction_wait"),
    Case("transaction", "save() { :; }\nchange() { modprobe nvidia; }\nrestore() { :; }", transaction=True),
    Case("zypper zypper_finish", _finish("zypper")),
    Case("zypper zypper_read zypper_trust", script_file("zypper", "zypper_read", "zypper_trust")),
    Case("zypper_forget", "primary_keys() { :; }" + script_file("zypper_forget")),
)
# They run within a probe or at a boot, whose results are judged, not by an operation; test_node_lock.py has its own.
ELSEWHERE = {
    "first_boot",
    "node_lock",
    "smoke",
    *(f"smoke_{name}" for name in ("choose", "crictl", "ctr", "docker", "root", "seen")),
}


def test_each_script_is_run_here() -> None:
    """A new script needs a case, by which its failures are looked at."""
    named = {name for case in CASES for name in case.scripts.split()}
    assert named | ELSEWHERE == {path.stem for path in SCRIPTS.glob("*.sh")}


class Node:
    """A folder that stands for a node's root directory, and its programs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for path in (
            "bin",
            "etc/x/conf.d",
            "etc/apt/sources.list.d",
            "etc/slurm",
            "etc/yum.repos.d",
            "run/gpunode",
            "proc",
            "var/lib/gpunode/transactions",
            "var/lib/pacman/local",
            "sys/module/nvidia",
            "usr/share/keyrings",
            "tmp",
            "boot",
            "var/lib/gpunode/runfiles",
            "usr/local",
        ):
            (folder / path).mkdir(parents=True, exist_ok=True)
        for path in ("etc/file", "etc/x/config.toml", "boot/initrd.img-6.1.0", "sys/module/nvidia/version"):
            (folder / path).write_text("1\n")
        (folder / "proc/uptime").write_text("100.0 0\n")
        for name in REAL:
            if program := shutil.which(name):
                (folder / "bin" / name).symlink_to(program)
        for name in {*STANDING_IN, *KNOWN}:
            body = STANDING_IN.get(name, ":").replace("FOLDER", str(folder))
            (folder / "bin" / name).write_text(
                f"#!/bin/sh\necho {name} >> {folder}/called\n"
                f'if [ "$FAILS" = {name} ]; then echo "{name}: injected fault" >&2; exit 7; fi\n{body}\n'
            )
            (folder / "bin" / name).chmod(0o755)

    def moved(self, text: str) -> str:
        """Return shell text with every path of a node below this folder."""
        return re.sub(
            r"(?<![\w.}*$-])(?<!\$\w)/(?=(?:etc|var|usr|run|sys|proc|boot|lib|lib64|opt|tmp|dev/char|dev/nvidia)\b)",
            f"{self.folder}/", text,
        )  # fmt: skip

    def run(self, case: Case, fails: str = "") -> subprocess.CompletedProcess[str]:
        """Run a case's text as an operation has it run, with one program that fails."""
        variables = {**VARIABLES, **{name: str(self.folder / path) for name, path in PATHS.items()}}
        variables |= {name: self.moved(value) for name, value in case.variables.items()}
        text = case.text or script_file(*case.scripts.split())
        if case.transaction:
            text = transaction_text(Transaction("x", text), "t" * 64, {})
        text = self.moved(script(text))
        command = ["sh", "-c", text, "gpunode", *(("change",) if case.transaction else case.arguments)]
        environment = {
            **variables,
            "PATH": str(self.folder / "bin"),
            "FAILS": fails,
            "TMPDIR": str(self.folder / "tmp"),
        }
        return subprocess.run(command, cwd=self.folder, env=environment, input=f"{encoded(case.standard_input)}\n",
                              capture_output=True, text=True, timeout=30, check=False)  # fmt: skip

    def called(self) -> set[str]:
        path = self.folder / "called"
        return set(path.read_text().split()) if path.exists() else set()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.scripts.replace(" ", "+"))
def test_a_script_whose_program_fails_gives_a_cause(case: Case, tmp_path: Path) -> None:
    (tmp_path / "whole").mkdir()
    whole = Node(tmp_path / "whole")
    done = whole.run(case)
    silent = []
    for number, name in enumerate(["", *sorted(whole.called())]):
        if name:
            (tmp_path / str(number)).mkdir()
            done = Node(tmp_path / str(number)).run(case, name)
        if done.returncode == 0:
            continue
        lines = [*(done.stdout + done.stderr).splitlines(), f"gpunode: exit status {done.returncode}"]
        first, *_ = failure(lines, "sh")
        if "printed nothing" in first.cause or "parameter not set" in first.cause:
            silent.append((name, first.cause, done.stderr[-300:]))
        assert first.remedy
    assert silent == []
