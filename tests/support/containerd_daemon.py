"""Start a real containerd with configuration files, in a root directory of its own, and return how it took them.

The daemon sees /usr, /proc, /sys and /dev of the machine and nothing else of it: its files are where a node has them,
and it is killed as soon as it has loaded its plugins. It takes root (mount namespaces), and 0.3 s.
"""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

CONFIG = "/etc/containerd/config.toml"
PRIVILEGED = "privileged_without_host_devices"
RUNC_V1_LINUX = "io.containerd.runtime.v1.linux"
# The daemon is the process that Python starts: each of these programs is replaced by the next.
_START = """set -e
mount --bind "$1" "$1"
for name in usr proc sys dev; do mount --rbind /$name "$1/$name"; done
mount --bind "$2" "$1/program"
exec chroot "$1" /usr/bin/env PATH=/program:/usr/sbin:/usr/bin /program/containerd --log-level info"""
_OPTIONS, _OLD_OPTIONS = ("BinaryName", "Root", "SystemdCgroup"), ("Runtime", "RuntimeRoot", "SystemdCgroup")
_BOOTED = "containerd successfully booted"
_PLUGIN = re.compile(r"io\.containerd\.(?:grpc\.v1\.cri|cri\.v1\.\w+)")
# Warnings of the machine, not of the configuration.
_MACHINE = re.compile(r"devmapper|fsverity|cgroup v1|blockfile|erofs|zfs|btrfs|TaskManager|CNI|cni")
_FIELD = re.compile(r'(\w+)=("(?:[^"\\]|\\.)*"|\S+)')
_RUNTIME = re.compile(
    r"(?P<name>[^\s\[]+):\{Type:(?P<type>\S*) Path:\S* Engine:(?P<engine>\S*) .*?\] Root:(?P<root>\S*) "
    r"Options:map\[(?P<options>.*?)\] PrivilegedWithoutHostDevices:(?P<privileged>\w+)"
    r"(?: PrivilegedWithoutHostDevicesAllDevicesAllowed:(?P<all_devices>\w+))? BaseRuntimeSpec:(?P<base_spec>\S*) "
)


@dataclass(frozen=True)
class LoadedRuntime:
    """One runtime, as the CRI plugin has it after the merge of all files.

    binary, root: the program that the shim calls and its state; empty: runc, and the shim's own choice
    all_devices: privileged_without_host_devices_all_devices_allowed
    """

    type: str
    binary: str = ""
    root: str = ""
    systemd_cgroup: bool = False
    no_pivot: bool = False
    privileged: bool = False
    all_devices: bool = False
    base_spec: str = ""


@dataclass(frozen=True)
class Loaded:
    """How a containerd took its configuration.

    fault: why the daemon ended, or why its CRI plugin is not loaded; empty where it serves
    cdi: None where this containerd has no such option
    """

    fault: str = ""
    default: str = ""
    runtimes: Mapping[str, LoadedRuntime] = field(default_factory=dict)
    cdi: bool | None = None
    warnings: tuple[str, ...] = ()


def load(folder: Path, files: Mapping[str, str | None]) -> Loaded:
    """Start the containerd of a folder with files by their paths (None: there is none), and return how it took them."""
    return _loaded(_log(folder, files))


def _log(folder: Path, files: Mapping[str, str | None]) -> str:
    with tempfile.TemporaryDirectory() as made:
        root = Path(made)
        for name in ("usr", "proc", "sys", "dev", "program", "tmp"):
            (root / name).mkdir()
        for name in ("bin", "sbin", "lib", "lib64"):
            (root / name).symlink_to(f"usr/{name}")
        for path, text in {**_referenced(files), **files}.items():
            if text is not None:
                file = root / path.lstrip("/")
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(text.encode("utf-8", "surrogateescape"))
        command = ["unshare", "--mount", "--propagation", "private", "sh", "-c", _START, "sh", made, str(folder)]
        with subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, errors="replace",
            text=True,
        ) as process:  # fmt: skip
            lines: list[str] = []
            assert process.stdout is not None
            for line in process.stdout:
                lines.append(line)
                if _BOOTED in line:
                    break
            process.kill()
    return "".join(lines)


def _referenced(files: Mapping[str, str | None]) -> dict[str, str]:
    """Return the files that a configuration names and that must exist: empty base specifications, and imports."""
    texts = "\n".join(text for text in files.values() if text)
    specs = re.findall(r"base_runtime_spec\s*=\s*[\"'](/[^\"']+)", texts)
    imports = re.findall(r"[\"'](/[^\"'*?\[]+\.toml)[\"']", texts)
    return dict.fromkeys(imports, "") | dict.fromkeys(specs, "{}")


def _loaded(log: str) -> Loaded:
    fault, warnings, found = "", [], Loaded()
    for line in log.splitlines():
        fields = {name: _unquoted(value) for name, value in _FIELD.findall(line)}
        message, error = fields.get("msg", ""), fields.get("error", "")
        if "tart" in message[:8] and "cri plugin" in message:
            found = _of_json(fields["config"]) if "config" in fields else _of_go(message)
        elif message.startswith("failed to load plugin") and _PLUGIN.search(f"{message} {fields.get('id', '')}"):
            fault = fault or error
        elif fields.get("level") == "warning" and not _MACHINE.search(line):
            warnings.append(" ".join((message, fields.get("key", error))).strip())
    if _BOOTED not in log:
        fault = log.strip().splitlines()[-1] if log.strip() else "it printed nothing"
    elif not fault and not found.runtimes:
        fault = "the CRI plugin is not loaded"
    return Loaded(fault, found.default, found.runtimes, found.cdi, tuple(warnings))


def _unquoted(value: str) -> str:
    return str(json.loads(value)) if value.startswith('"') else value


def _of_json(config: str) -> Loaded:
    """Read the configuration that containerd 2 logs."""
    values = json.loads(config)
    runtimes = {}
    for name, runtime in values["containerd"]["runtimes"].items():
        # It is decoded once more, without regard to case, in the order of the names: the last one counts.
        options = {key.lower(): value for key, value in sorted((runtime["options"] or {}).items())}
        runtimes[name] = LoadedRuntime(
            runtime["runtimeType"], options.get("binaryname", ""), options.get("root", ""),
            bool(options.get("systemdcgroup")), bool(options.get("nopivotroot")), runtime[PRIVILEGED],
            runtime[f"{PRIVILEGED}_all_devices_allowed"], runtime["baseRuntimeSpec"],
        )  # fmt: skip
    # From 2.4 on there is no such option: CDI is always on.
    return Loaded("", values["containerd"]["defaultRuntimeName"], runtimes, values.get("enableCDI", True))


def _of_go(message: str) -> Loaded:
    """Read the configuration that containerd 1 logs, in Go's own notation."""
    head, _, rest = message.partition(" Runtimes:map[")
    runtimes, pivot = {}, str(" NoPivot:true " in rest).lower()
    for match in _RUNTIME.finditer(rest):
        options = {key: value for key, _, value in (item.partition(":") for item in match["options"].split())}
        is_old = match["type"] == RUNC_V1_LINUX
        binary, root, cgroup = (_option(options, name) for name in (_OLD_OPTIONS if is_old else _OPTIONS))
        no_pivot = pivot if is_old else _option(options, "NoPivotRoot")
        if is_old and not options:
            binary, root, cgroup = match["engine"], match["root"], str(" SystemdCgroup:true " in rest).lower()
        runtimes[match["name"]] = LoadedRuntime(
            match["type"], binary, root, cgroup == "true", no_pivot == "true", match["privileged"] == "true",
            match["all_devices"] == "true", match["base_spec"],
        )  # fmt: skip
    cdi = re.search(r" EnableCDI:(\w+)", rest)
    default = re.search(r"DefaultRuntimeName:(\S*)", head)
    return Loaded("", default[1] if default else "", runtimes, cdi and cdi[1] == "true")


def _option(options: Mapping[str, str], name: str) -> str:
    """Return an option by the spellings that containerd 1 tries, in its order."""
    spellings = (name, name.lower(), name.upper(), name[0].lower() + name[1:])
    return next((options[each] for each in spellings if each in options), "")
