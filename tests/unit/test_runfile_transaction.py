"""A .run file as sh runs it, and the driver's transaction around it: what comes, and what comes back.

SIMULATED: NVIDIA's installer, apt, dpkg, modprobe (simulated_dpkg.py).
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
from pathlib import Path

import pytest

from gpunode.components.runfile import CAUSES
from gpunode.operations.driver_transaction import INSTALLER, driver_transaction
from gpunode.operations.families import APT
from gpunode.operations.script import script
from gpunode.operations.transaction import transaction_text
from tests.support.messages import unnamed
from tests.support.simulated_dpkg import PLACES, SimulatedDpkg

pytestmark = pytest.mark.simulated

OLD, NEW = "580.82.07", "580.95.05"
# An installer: its version is in its name, and `broken` in its state makes it end in a log and a status.
_INSTALLER = r"""#!/bin/sh
version=${0##*-}; version=${version%.run}
told=$*; echo "$version ${told% --tmpdir=*}" >> "$STATE/ran"
mkdir -p "$ROOT/var/log" "$ROOT/usr/bin" "$ROOT/usr/lib/x86_64-linux-gnu"
# The archive makes its temporary folder in --tmpdir, which has to be there.
temporary=${told##* --tmpdir=}; [ -d "$temporary" ] && [ "$temporary" = "$TMPDIR" ] || exit 3
echo "$temporary" >> "$STATE/temporary"; : > "$temporary/unpacked"
if grep -qx "$version" "$STATE/broken" 2>/dev/null; then
  echo "ERROR: Unable to build the kernel module." > "$ROOT/var/log/nvidia-installer.log"; exit 1
fi
ln -sfn "libnvidia-ml.so.$version" "$ROOT/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1"
: > "$ROOT/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.$version"
echo "$version" > "$STATE/module"
printf '#!/bin/sh\necho "uninstall $#: $*" >> "$STATE/ran"; rm -f "$STATE/module" %s "$0"\n' \
  "$ROOT/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1" > "$ROOT/usr/bin/nvidia-uninstall"
chmod 755 "$ROOT/usr/bin/nvidia-uninstall"
"""


def sealed(path: Path, text: str) -> Path:
    """Write a .run file with the SHA-256 that it had when it came beside it."""
    path.write_text(text)
    path.with_name(f"{path.name}.sha256").write_text(f"{hashlib.sha256(text.encode()).hexdigest()}\n")
    return path


class Machine(SimulatedDpkg):
    """Hold a node on which .run files lie, and run the driver's transaction with one of them."""

    @property
    def runfiles(self) -> Path:
        """Return the folder of the .run files."""
        return self.state / "runfiles"

    def keep(self, version: str) -> Path:
        """Put a version's .run file, and its SHA-256, where a run would fetch it to."""
        self.runfiles.mkdir(exist_ok=True)
        return sealed(self.runfiles / f"NVIDIA-Linux-{_MACHINE}-{version}.run", _INSTALLER)

    def by_runfile(
        self, version: str, rollback: str = "required", text: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run the transaction to a version, as operations.runfile.installed asks for it; `text`: another installer."""
        path = self.runfiles / f"NVIDIA-Linux-{_MACHINE}-{version}.run"
        if text is not None:
            sealed(path, text)
        there = self.runfile
        going = " ".join(f"{name}-" for name in self.packages)
        variables = {
            "runfile": str(path), "sha256": hashlib.sha256((text or _INSTALLER).encode()).hexdigest(),
            "upstream": version,
            "runfiles": str(self.runfiles), "installer_log": f"{self.root}/var/log/nvidia-installer.log",
            "install": "--silent --new", "uninstall": "--silent --leave", "before_install": "--silent --before",
            "before_uninstall": "--silent", "before_version": there or "", "arguments": going, "expected": "",
            "names": "", "kernel": "", "own": "^nvidia-.*$", "foreign": "^$", "rollback": rollback, "holding": "",
        }  # fmt: skip
        told = transaction_text(driver_transaction(APT, "driver_runfile"), "target-1", variables)
        told = told.replace("folder=/var/lib/gpunode/transactions", f"folder={self.state}", 1)
        for place in PLACES:
            told = re.sub(rf"(?<![\w./]){re.escape(place)}", f"{self.root}{place}", told)
        (self.state / "driver.sh").write_text(script(told))
        return self.run("change")

    @property
    def runfile(self) -> str | None:
        """Return the version that a runfile installed."""
        path = self.state / "module"
        there = (self.root / "usr/bin/nvidia-uninstall").exists()
        return path.read_text().strip() if path.exists() and there else None

    @property
    def ran(self) -> list[str]:
        """Return which installers ran, with what they were told."""
        path = self.state / "ran"
        return path.read_text().splitlines() if path.exists() else []


_MACHINE = subprocess.run(["uname", "-m"], capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def node(tmp_path: Path) -> Machine:
    """Return a node without a driver, with two .run files."""
    made = Machine(tmp_path)
    for version in (OLD, NEW):
        made.keep(version)
    return made


def test_a_driver_that_loads_is_kept_and_so_is_its_file(node: Machine) -> None:
    done = node.by_runfile(OLD)
    assert (done.returncode, node.journal, node.runfile, node.loaded) == (0, "done", OLD, OLD), done.stderr
    assert node.ran == [f"{OLD} --silent --new"]
    assert [path.name for path in node.runfiles.glob("*.run")] == [f"NVIDIA-Linux-{_MACHINE}-{OLD}.run"]
    # It unpacks beside the transaction and not in /tmp, and nothing of that stays.
    (temporary,) = (node.state / "temporary").read_text().splitlines()
    assert temporary.startswith(str(node.state)) and not Path(temporary).exists()


def test_an_upgrade_under_a_loaded_module_keeps_both_files_and_waits_for_the_boot(node: Machine) -> None:
    node.by_runfile(OLD)
    node.keep(NEW)
    done = node.by_runfile(NEW)
    assert (done.returncode, node.journal, node.runfile, node.loaded) == (0, "done", NEW, OLD), done.stderr
    assert (node.state / "driver/unproven").exists()
    assert len(list(node.runfiles.glob("*.run"))) == 2


def test_an_installer_that_fails_has_the_end_of_its_log_and_a_remedy_in_our_error(node: Machine) -> None:
    node.write("broken", NEW)
    done = node.by_runfile(NEW)
    assert (done.returncode, node.journal, node.runfile) == (1, "failed", None)
    assert (
        f"NVIDIA-Linux-{_MACHINE}-{NEW}.run exits 1; the end of {node.root}/var/log/nvidia-installer.log" in done.stderr
    )
    assert re.search(r"^ERROR: .*kernel module\.$", done.stderr, re.MULTILINE)
    reason = json.loads((node.state / "driver.json").read_text())["reason"]
    assert unnamed(reason, NEW, "exits 1", "module") == []


def test_the_end_of_an_older_log_is_not_shown(node: Machine) -> None:
    (node.root / "var/log").mkdir(parents=True)
    (node.root / "var/log/nvidia-installer.log").write_text("ERROR: of another day\n")
    path = sealed(node.keep(NEW), "#!/bin/sh\necho 'archive is damaged: No space left on device' >&2; exit 2\n")
    text = (
        f"checkpoint={node.state}\n{INSTALLER}\nrun_installer {node.root}/var/log/nvidia-installer.log {path} --silent"
    )
    done = subprocess.run(["sh", "-c", text], capture_output=True, text=True, check=False, env=node.environment)
    assert done.returncode == 2
    assert "archive is damaged" in done.stderr and "of another day" not in done.stderr
    assert unnamed(done.stderr, "full") == []


def test_a_driver_that_does_not_load_is_put_back_by_the_file_of_before(node: Machine) -> None:
    node.by_runfile(OLD)
    node.keep(NEW)
    subprocess.run(["modprobe", "-r", "nvidia"], env=node.environment, check=True)
    node.write("does-not-load", NEW)
    done = node.by_runfile(NEW)
    assert (done.returncode, node.journal, node.runfile, node.loaded) == (1, "failed", OLD, OLD)
    assert node.ran[-1] == f"{OLD} --silent --before"
    assert "does not load: modprobe: ERROR: No such device" in done.stderr


def test_a_first_driver_that_does_not_load_leaves_nothing_behind(node: Machine) -> None:
    node.write("does-not-load", NEW)
    done = node.by_runfile(NEW)
    assert (done.returncode, node.journal, node.runfile, node.loaded) == (1, "failed", None, None)
    assert node.ran[-1] == "uninstall 2: --silent --leave"


def test_an_installer_that_failed_before_it_touched_anything_is_not_run_again_to_go_back(node: Machine) -> None:
    node.by_runfile(OLD)
    node.keep(NEW)
    node.write("broken", NEW)
    assert node.by_runfile(NEW).returncode == 1
    assert (node.runfile, node.journal) == (OLD, "failed")
    assert [line.split()[0] for line in node.ran] == [OLD, NEW]


@pytest.mark.parametrize("altered", [True, False])
def test_without_the_file_of_before_nothing_is_changed_unless_the_settings_go_on(node: Machine, altered: bool) -> None:
    node.by_runfile(OLD)
    node.keep(NEW)
    before = node.keep(OLD)
    if altered:
        before.write_text("#!/bin/sh\n")
    else:
        before.unlink()
    done = node.by_runfile(NEW)
    assert (done.returncode, node.journal, node.runfile) == (1, "done", OLD)
    assert unnamed(done.stderr, "driver.rollback = 'best-effort'") == []
    assert (node.by_runfile(NEW, rollback="best-effort").returncode, node.runfile) == (0, NEW)


@pytest.mark.parametrize("whole", [True, False])
def test_a_file_that_was_altered_or_is_not_the_one_of_the_settings_is_removed_and_not_run(
    node: Machine, whole: bool
) -> None:
    path, text = node.keep(NEW), f"{_INSTALLER}\n: another build\n"
    if whole:
        sealed(path, text)
    else:
        path.write_text(text)
    done = node.by_runfile(NEW)
    assert (done.returncode, node.journal, node.ran, path.exists()) == (1, None, [], False)
    assert unnamed(done.stderr, "removed") == []


@pytest.fixture
def packaged(tmp_path: Path) -> Machine:
    """Return a node with a driver of packages, held, whose repository has it, and a .run file."""
    made = Machine(tmp_path, nvidia_open=f"{OLD}-1", nvidia_smi=f"{OLD}-1")
    made.keep(NEW)
    return made


BEFORE = {"nvidia-open": f"{OLD}-1 hold", "nvidia-smi": f"{OLD}-1 hold"}


def test_packages_go_before_the_runfile_comes_and_are_saved(packaged: Machine) -> None:
    packaged.load()
    done = packaged.by_runfile(NEW)
    assert (done.returncode, packaged.journal, packaged.packages) == (0, "done", {}), done.stderr
    assert (packaged.runfile, packaged.loaded) == (NEW, OLD)
    assert len(list((packaged.state / "driver/debs").iterdir())) == 2


def test_packages_come_back_held_and_served_where_the_runfile_does_not_work(packaged: Machine) -> None:
    packaged.write("does-not-load", NEW)
    packaged.write("enabled", "nvidia-persistenced")
    done = packaged.by_runfile(NEW)
    assert (done.returncode, packaged.journal, packaged.runfile) == (1, "failed", None)
    assert (packaged.packages, packaged.loaded) == (BEFORE, OLD)
    assert (packaged.state / "enabled").read_text() == "nvidia-persistenced\n"


@pytest.mark.parametrize(
    ("fault", "ends"),
    [
        # No proof against the driver.
        ("echo 'ERROR: No space left on device' >&2; exit 1", "restored"),
        ("kill -9 $$", "restored"),
        ("exit 1", "failed"),
    ],
)
def test_packages_come_back_where_the_installer_fails(packaged: Machine, fault: str, ends: str) -> None:
    text = _INSTALLER.replace("version=${0##*-}", f"{fault}\nversion=${{0##*-}}", 1)
    done = packaged.by_runfile(NEW, text=text)
    assert (done.returncode != 0, packaged.journal, packaged.packages) == (True, ends, BEFORE), done.stderr


def test_packages_that_cannot_be_saved_are_not_removed(packaged: Machine) -> None:
    packaged.write("repository")
    done = packaged.by_runfile(NEW)
    assert (done.returncode, packaged.journal, packaged.packages) == (1, None, BEFORE)
    assert unnamed(done.stderr, "driver.rollback = 'best-effort'") == []
    assert packaged.ran == []


def test_a_runfile_s_driver_goes_before_packages_come_and_comes_back_where_they_do_not_work(node: Machine) -> None:
    node.by_runfile(OLD)
    node.offer(f"nvidia-open {NEW}-1")
    node.write("does-not-load", NEW)
    subprocess.run(["modprobe", "-r", "nvidia"], env=node.environment, check=True)
    done = node.change(NEW, f"nvidia-open={NEW}-1", runfiles=str(node.runfiles), before_version=OLD)
    assert (done.returncode, node.journal, node.packages) == (1, "failed", {})
    assert (node.runfile, node.loaded) == (OLD, OLD), done.stderr
    node.write("does-not-load")
    (node.state / "driver.json").unlink()
    done = node.change(NEW, f"nvidia-open={NEW}-1", runfiles=str(node.runfiles), before_version=OLD)
    assert (done.returncode, node.journal, node.runfile) == (0, "done", None), done.stderr
    assert node.ran[-1] == "uninstall 2: --silent --leave-before"
    assert node.packages == {"nvidia-open": f"{NEW}-1 install"}


@pytest.mark.parametrize("number", range(len(CAUSES)))
def test_each_known_cause_is_told_with_its_remedy(tmp_path: Path, number: int) -> None:
    pattern, remedy = CAUSES[number]
    (tmp_path / "x.run").write_text(f"echo 'ERROR: something about {pattern} went wrong' >&2; exit 1\n")
    text = f"checkpoint={tmp_path}\n{INSTALLER}\nrun_installer {tmp_path}/none.log {tmp_path}/x.run"
    done = subprocess.run(["sh", "-c", text], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert f"gpunode: remedy: {remedy}" in done.stderr


def test_a_runfile_s_driver_comes_back_where_apt_dies_halfway(node: Machine) -> None:
    node.by_runfile(OLD)
    node.offer(f"nvidia-open {NEW}-1")
    (node.state / "apt-dies").touch()
    done = node.change(NEW, f"nvidia-open={NEW}-1", runfiles=str(node.runfiles), before_version=OLD)
    assert (done.returncode, node.journal, node.packages, node.runfile) == (1, "restored", {}, OLD), done.stderr
