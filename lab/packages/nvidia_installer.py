#!/usr/bin/python3
"""SIMULATED nvidia-installer of gpunode's lab: the real one's options, log, exit status and none of its files.

Stands in a .run file beside `package.json` and what it installs, and on a node as /usr/bin/nvidia-installer, where it
uninstalls. Modules are the lab's text files; where the real one compiles, this one only asks for the compiler.
"""

from __future__ import annotations

import json
import platform
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MODULES = ("nvidia", "nvidia-uvm", "nvidia-modeset", "nvidia-drm", "nvidia-peermem")
LICENSES = {"open": "Dual MIT/GPL", "proprietary": "NVIDIA"}
# Option -> (first version that knows it, whether it takes a value): nvidia-installer's option_table.h at its tags.
OPTIONS = {
    "--silent": ("0", False), "-s": ("0", False), "--no-questions": ("0", False), "-q": ("0", False),
    "--ui": ("0", True), "--accept-license": ("0", False), "-a": ("0", False), "--dkms": ("304.22", False),
    "--kernel-name": ("0", True), "--log-file-name": ("0", True), "--uninstall": ("0", False),
    "--no-x-check": ("0", False), "--no-nouveau-check": ("0", False), "-z": ("0", False),
    "--disable-nouveau": ("0", False), "--no-cc-version-check": ("0", False), "--tmpdir": ("0", True),
    "--no-check-for-alternate-installs": ("0", False), "--kernel-module-only": ("0", False), "-K": ("0", False),
    "--skip-module-unload": ("346.16", False), "--kernel-module-build-directory": ("470.42.01", True),
    "-m": ("470.42.01", True), "--no-dkms": ("520.56.06", False),
    "--allow-installation-with-running-driver": ("545.23.06", False), "--no-rebuild-initramfs": ("545.23.06", False),
    "--skip-module-load": ("550.40.07", False), "--kernel-module-type": ("555.42.02", True), "-M": ("555.42.02", True),
}  # fmt: skip
# Since it can be forbidden, a silent installation registers with DKMS of itself, where that is there.
DKMS_BY_ITSELF = "520.56.06"
_LONG = {"-s": "--silent", "-q": "--no-questions", "-z": "--no-nouveau-check", "-M": "--kernel-module-type",
         "-m": "--kernel-module-build-directory", "-K": "--kernel-module-only"}  # fmt: skip
DEFAULT_LOG = "/var/log/nvidia-installer.log"
RECORD = "var/lib/nvidia/log"


class InstallerError(Exception):
    """Say why the installation ends, as the log will have it."""


@dataclass
class Run:
    """Hold one run: where the node's files are, what was asked for, and the log."""

    root: Path
    options: dict[str, str] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)

    def path(self, absolute: str) -> Path:
        """Return where an absolute path of the node lies."""
        return self.root / absolute.lstrip("/")

    def say(self, text: str) -> None:
        """Add a line to the log."""
        self.lines.append(text)

    def write_log(self) -> None:
        """Write the log where it was asked for."""
        path = self.path(self.options.get("--log-file-name", DEFAULT_LOG))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{line}\n" for line in self.lines))

    @property
    def libraries(self) -> str:
        """Return where the node's distribution has its libraries: Debian and its kin by the machine's kind."""
        return "usr/lib64" if self.path("/var/lib/rpm/rpmdb.sqlite").exists() else "usr/lib/x86_64-linux-gnu"

    @property
    def fault(self) -> str:
        """Return how it is to fail: `build` (nothing is touched yet), `files` or `hang` (in the middle), or not."""
        path = self.path("/etc/gpunode-lab/faults.json")
        faults = json.loads(path.read_text() or "{}") if path.exists() else {}
        return str(faults.get("installer", ""))


def at_least(version: str, minimum: str) -> bool:
    """Say whether a driver's version is `minimum` or newer."""
    found, wanted = ([int(part) for part in text.split(".")] for text in (version, minimum))
    return found >= wanted


def parsed(arguments: list[str], version: str) -> dict[str, str]:
    """Return option -> value; raise InstallerError for what an installer of this version does not know."""
    found: dict[str, str] = {}
    rest = list(arguments)
    while rest:
        name, equals, value = rest.pop(0).partition("=")
        if name not in OPTIONS or not at_least(version, OPTIONS[name][0]):
            raise InstallerError(f"option {name} is not known to this installer; see --advanced-options")
        if OPTIONS[name][1] and not equals:
            if not rest:
                raise InstallerError(f"option {name} needs a value")
            value = rest.pop(0)
        found[_LONG.get(name, name)] = value
    return found


def flavour_of(options: dict[str, str]) -> str:
    """Return which module is asked for: open or proprietary."""
    kind = options.get("--kernel-module-type")
    if kind is not None:
        if kind not in LICENSES:
            raise InstallerError(f"--kernel-module-type={kind}: there are open and proprietary")
        return kind
    folder = options.get("--kernel-module-build-directory", "kernel").rstrip("/")
    if folder not in ("kernel", "kernel-open"):
        raise InstallerError(f"--kernel-module-build-directory={folder}: there are kernel and kernel-open")
    return "open" if folder == "kernel-open" else "proprietary"


def check(run: Run, package: dict[str, Any]) -> None:
    """Raise InstallerError where the real one ends before it has touched anything."""
    if not {"--silent", "--no-questions"} & set(run.options):
        raise InstallerError("a question would be asked here, and nobody is there to answer (--silent)")
    if _packaged(run):
        raise InstallerError("another installation of the driver was found: packages of the distribution; remove it")
    if run.path("/sys/module/nouveau").exists() and "--no-nouveau-check" not in run.options:
        raise InstallerError("nouveau is in use by the kernel")
    if run.path("/sys/module/nvidia").exists() and "--allow-installation-with-running-driver" not in run.options:
        raise InstallerError("an NVIDIA module appears to be already loaded in the kernel, and no option allows that")
    if shutil.which("gcc") is None and shutil.which("cc") is None:
        raise InstallerError("no compiler was found: cc is not on the PATH")
    if shutil.which("make") is None:
        raise InstallerError("make was not found, which builds the kernel module")
    if "--dkms" in run.options and shutil.which("dkms") is None:
        raise InstallerError("dkms is asked for and not on the PATH")
    if run.fault == "build":
        raise InstallerError("SIMULATED fault: the kernel module could not be built; make ended with status 2")


def _packaged(run: Run) -> bool:
    if run.root != Path("/"):
        return False
    if shutil.which("dpkg-query"):
        names = ["nvidia-kernel-dkms", "nvidia-kernel-open-dkms", "libnvidia-ml1"]
        command = ["dpkg-query", "-W", "-f", "${db:Status-Status}\\n", *names]
    else:
        names = ["kmod-nvidia-latest-dkms", "kmod-nvidia-open-dkms", "libnvidia-ml"]
        command = ["rpm", "-q", "--qf", "installed\\n", *names]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return "installed" in done.stdout.splitlines()


def install(run: Run, source: Path, package: dict[str, Any]) -> None:
    """Install the driver that lies in `source`, after the one that another .run file installed is gone."""
    check(run, package)
    flavour, version = flavour_of(run.options), str(package["version"])
    kernel = run.options.get("--kernel-name", platform.release())
    run.say(f"-> Installing NVIDIA driver {version}, {flavour} kernel modules, for kernel {kernel}")
    record = run.path(RECORD)
    if "--kernel-module-only" in run.options:
        if not record.exists() or record.read_text().splitlines()[0] != version:
            raise InstallerError(f"a module alone needs the driver {version} to be installed already")
        more = _modules(run, version, flavour, kernel, loads=bool(package.get("loads", True)))
        record.write_text(record.read_text() + "".join(f"{path}\n" for path in more))
        return
    uninstall(run)
    if run.fault in ("files", "hang"):
        run.path("/usr/bin/nvidia-smi").write_text("SIMULATED half a file\n")
        # Long enough to be killed in the middle.
        time.sleep(60 if run.fault == "hang" else 0)
        raise InstallerError("SIMULATED fault: a file could not be written in the middle of the installation")
    written: list[str] = []
    libraries = {f"libnvidia-ml.so.{version}": "libnvidia-ml.so", f"libcuda.so.{version}": "libcuda.so"}
    for name in libraries:
        written.append(_copied(run, source / name, f"{run.libraries}/{name}", 0o644))
    for name, plain in libraries.items():
        written.append(_linked(run, f"{run.libraries}/{plain}.1", name))
    if run.root == Path("/"):
        subprocess.run(["ldconfig"], check=False)
    written.append(_copied(run, source / "nvidia-smi", "usr/bin/nvidia-smi", 0o755))
    written.append(_copied(run, Path(__file__).resolve(), "usr/bin/nvidia-installer", 0o755))
    written.append(_linked(run, "usr/bin/nvidia-uninstall", "nvidia-installer"))
    written += _modules(run, version, flavour, kernel, loads=bool(package.get("loads", True)))
    record.parent.mkdir(parents=True, exist_ok=True)
    record.write_text(f"{version}\n" + "".join(f"{path}\n" for path in written))
    if "--skip-module-load" not in run.options and kernel == platform.release():
        done = subprocess.run(["modprobe", "nvidia"], capture_output=True, text=True, check=False)
        if done.returncode:
            uninstall(run)
            raise InstallerError(f"the kernel module does not load: {done.stderr.strip()}")


def _copied(run: Run, source: Path, target: str, mode: int) -> str:
    path = run.path(target)
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.new")
    shutil.copyfile(source, draft)
    draft.chmod(mode)
    draft.replace(path)
    return target


def _linked(run: Run, target: str, to: str) -> str:
    path = run.path(target)
    path.unlink(missing_ok=True)
    path.symlink_to(to)
    return target


def _modules(run: Run, version: str, flavour: str, kernel: str, loads: bool) -> list[str]:
    dkms = "--dkms" in run.options
    folder = f"lib/modules/{kernel}/{'updates/dkms' if dkms else 'kernel/drivers/video'}"
    run.path(folder).mkdir(parents=True, exist_ok=True)
    written = []
    for module in MODULES:
        text = (
            f"SIMULATED kernel module of the gpunode lab\nname={module}\nversion={version}\n"
            f"license={LICENSES[flavour]}\nflavour={flavour}\nloads={'yes' if loads else 'no'}\n"
        )
        run.path(f"{folder}/{module}.ko").write_text(text)
        written.append(f"{folder}/{module}.ko")
    # In place of depmod, which takes no text for a module: the toolkit's nvidia-cdi-refresh.service reads this list.
    modules = run.path(f"lib/modules/{kernel}")
    listed = "".join(f"{path.relative_to(modules)}:\n" for path in sorted(modules.rglob("*.ko")))
    (modules / "modules.dep").write_text(listed)
    written.append(f"lib/modules/{kernel}/modules.dep")
    run.say(f"-> SIMULATED: the kernel modules are written, not built, for kernel {kernel}")
    sources = f"usr/src/nvidia-{version}"
    run.path(sources).mkdir(parents=True, exist_ok=True)
    run.path(f"{sources}/dkms.conf").write_text(f'PACKAGE_NAME="nvidia"\nPACKAGE_VERSION="{version}"\n')
    written.append(f"{sources}/dkms.conf")
    if dkms:
        tree = f"var/lib/dkms/nvidia/{version}"
        built = run.path(f"{tree}/{kernel}/{platform.machine()}/module")
        built.mkdir(parents=True, exist_ok=True)
        (built / "nvidia.ko").write_text("SIMULATED\n")
        written.append(_linked(run, f"{tree}/source", f"/{sources}"))
        run.say(f"-> SIMULATED: registered with DKMS as nvidia/{version}")
    return written


def uninstall(run: Run) -> None:
    """Remove what the record names; fine where there is none."""
    record = run.path(RECORD)
    if not record.exists():
        return
    version, *paths = record.read_text().splitlines()
    run.say(f"-> Uninstalling the NVIDIA driver {version}")
    shutil.rmtree(run.path(f"var/lib/dkms/nvidia/{version}"), ignore_errors=True)
    for name in paths:
        run.path(name).unlink(missing_ok=True)
    shutil.rmtree(run.path(f"usr/src/nvidia-{version}"), ignore_errors=True)
    for folder in ("var/lib/dkms/nvidia", "var/lib/dkms"):
        path = run.path(folder)
        if path.is_dir() and not any(path.iterdir()):
            path.rmdir()
    shutil.rmtree(record.parent)


def main(arguments: list[str], program: str, source: Path, root: Path = Path("/")) -> int:
    """Install or uninstall as the arguments say; return the exit status, 1 for any failure."""
    manifest = source / "package.json"
    package = json.loads(manifest.read_text()) if manifest.exists() else {}
    # What stands alone on a node only uninstalls, and says nothing of its version.
    version = str(package.get("version", "999"))
    run = Run(root)
    run.say(f"SIMULATED nvidia-installer log of gpunode's lab, {time.strftime('%Y-%m-%dT%H:%M:%S')}")
    run.say(f"installer version: {package.get('version', 'installed')}\ncommand line: {' '.join(arguments)}")
    try:
        run.options = parsed(arguments, version)
        by_itself = at_least(version, DKMS_BY_ITSELF) and "--no-dkms" not in run.options and shutil.which("dkms")
        if by_itself and "--silent" in run.options:
            run.options.setdefault("--dkms", "")
        if program == "nvidia-uninstall" or "--uninstall" in run.options:
            run.options.setdefault("--log-file-name", "/var/log/nvidia-uninstall.log")
            if not run.path(RECORD).exists():
                raise InstallerError("no driver of this installer is on this machine")
            uninstall(run)
            if "--skip-module-unload" not in run.options:
                for module in ("nvidia_uvm", "nvidia"):
                    subprocess.run(["rmmod", module], capture_output=True, check=False)
        elif manifest.exists():
            install(run, source, package)
        else:
            raise InstallerError("this nvidia-installer stands alone: it can only uninstall")
    except InstallerError as error:
        run.say(f"ERROR: {error}")
        run.say("ERROR: the installation has failed")
        run.write_log()
        print(f"\nERROR: {error}\n", file=sys.stderr)
        return 1
    except OSError as error:
        run.say(f"ERROR: {error}")
        run.write_log()
        print(f"\nERROR: {error}\n", file=sys.stderr)
        return 1
    run.write_log()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], Path(sys.argv[0]).name, Path(__file__).resolve().parent))
