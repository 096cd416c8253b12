"""The driver's transaction as sh runs it: what is saved, proven, and put back.

SIMULATED: apt, dpkg, modprobe and nvidia-smi (simulated_dpkg.py); the scenarios under tests/molecule have real ones.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from gpunode.operations.keeping import digest_of_text, noted_command
from tests.support.messages import unnamed
from tests.support.simulated_dpkg import SimulatedDpkg

pytestmark = pytest.mark.simulated

OLD, NEW = "580.82.07", "580.95.05"
BEFORE = {"nvidia-open": f"{OLD}-1 hold", "nvidia-smi": f"{OLD}-1 hold"}
AFTER = (f"nvidia-open={NEW}-1", f"nvidia-smi={NEW}-1")


@pytest.fixture
def node(tmp_path: Path) -> SimulatedDpkg:
    """Return a node with the old driver, held and not loaded, whose repository has the old one and the new one."""
    made = SimulatedDpkg(tmp_path, nvidia_open=f"{OLD}-1", nvidia_smi=f"{OLD}-1")
    made.offer(f"nvidia-open {NEW}-1", f"nvidia-smi {NEW}-1")
    return made


def test_what_loads_and_answers_is_kept_and_held_as_before(node: SimulatedDpkg) -> None:
    done = node.change(NEW, *AFTER)
    assert (done.returncode, node.journal, node.loaded) == (0, "done", NEW), done.stderr
    assert node.packages == {"nvidia-open": f"{NEW}-1 hold", "nvidia-smi": f"{NEW}-1 hold"}
    assert not (node.state / "driver/unproven").exists()
    assert len(list((node.state / "driver/debs").iterdir())) == 2


def test_under_a_loaded_module_the_new_one_is_installed_and_marked_unproven(node: SimulatedDpkg) -> None:
    node.load()
    assert node.change(NEW, *AFTER).returncode == 0
    assert (node.journal, node.loaded) == ("done", OLD)
    assert (node.state / "driver/unproven").exists()


@pytest.mark.parametrize("bound", [True, False])
def test_only_a_nouveau_that_has_a_gpu_keeps_the_module_from_being_tried(node: SimulatedDpkg, bound: bool) -> None:
    (node.root / "sys/module/nouveau").mkdir(parents=True)
    if bound:
        (node.root / "sys/bus/pci/drivers/nouveau/0000:1a:00.0").mkdir(parents=True)
    assert node.change(NEW, *AFTER).returncode == 0
    assert (node.loaded, (node.state / "driver/unproven").exists()) == ((None, True) if bound else (NEW, False))


@pytest.mark.parametrize("code", [9, 12, 18, 124, 137])
def test_a_driver_that_loads_and_does_not_answer_is_put_back_and_not_tried_again(
    node: SimulatedDpkg, code: int
) -> None:
    node.write("smi", str(code))
    done = node.change(NEW, *AFTER)
    assert (done.returncode, node.journal) == (1, "failed")
    assert f"the module {NEW} is loaded, and nvidia-smi exits {code}" in done.stderr
    assert (node.packages, node.loaded) == (BEFORE, OLD)


@pytest.mark.parametrize("code", [0, 15, 127])
def test_what_is_not_of_the_driver_s_doing_is_not_held_against_it(node: SimulatedDpkg, code: int) -> None:
    node.write("smi", str(code))
    assert node.change(NEW, *AFTER).returncode == 0
    assert (node.journal, node.loaded) == ("done", NEW)


def test_a_driver_that_does_not_load_is_put_back_and_the_old_one_loaded(node: SimulatedDpkg) -> None:
    node.write("does-not-load", NEW)
    done = node.change(NEW, *AFTER)
    assert (done.returncode, node.journal, node.packages, node.loaded) == (1, "failed", BEFORE, OLD)
    assert "does not load: modprobe: ERROR: No such device" in done.stderr


OTHER = "sys/bus/pci/devices/0000:1a:00.0"


@pytest.mark.parametrize(
    ("path", "text", "said"),
    [
        ("etc/modprobe.d/site.conf", "alias nvidia off\n", "modprobe: FATAL: Module off not found."),
        ("etc/modprobe.d/site.conf", "# of ours\ninstall nvidia /bin/false\n", "modprobe: ERROR: install command"),
        ("etc/modprobe.d/site.conf", "install nvidia /bin/true\n", None),
        ("proc/cmdline", "quiet module_blacklist=nouveau,nvidia ro\n", "Operation not permitted"),
        ("sys/bus/pci/drivers/vfio-pci/x", "", "modprobe: ERROR: could not insert 'nvidia': No such device"),
        ("sys/bus/pci/drivers/NovaCore/x", "", "modprobe: ERROR: could not insert 'nvidia': No such device"),
        ("unused", "", "modprobe: ERROR: could not insert 'nvidia': Cannot allocate memory"),
    ],
)
def test_what_keeps_every_version_from_loading_neither_undoes_nor_blames_one(
    node: SimulatedDpkg, path: str, text: str, said: str | None
) -> None:
    file = node.root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    if "drivers" in path:
        (node.root / OTHER).mkdir(parents=True)
        for name, value in (("vendor", "0x10de"), ("class", "0x030200")):
            (node.root / OTHER / name).write_text(f"{value}\n")
        (node.root / OTHER / "driver").symlink_to(file.parent)
    node.write("loads-nothing") if said is None else node.write("modprobe-says", said)
    done = node.change(NEW, *AFTER)
    assert (done.returncode, node.journal, node.loaded) == (0, "done", None), done.stderr
    assert node.packages == {"nvidia-open": f"{NEW}-1 hold", "nvidia-smi": f"{NEW}-1 hold"}
    assert (node.state / "driver/unproven").exists() and "gpunode: remedy: " in done.stderr


@pytest.mark.parametrize(
    ("line", "said", "journal"),
    [
        ("alias nvidia off", "modprobe: FATAL: Module off not found.", "done"),
        ("", None, "failed"),
        # Neither the earlier driver loads: it is not the version.
        ("", "modprobe: ERROR: could not insert 'nvidia': Key was rejected by service", "restored"),
    ],
)
def test_after_the_boot_a_driver_is_undone_unless_no_version_would_load(
    node: SimulatedDpkg, line: str, said: str | None, journal: str
) -> None:
    node.load()
    assert node.change(NEW, *AFTER).returncode == 0 and (node.state / "driver/unproven").exists()
    (node.root / "etc/modprobe.d").mkdir()
    (node.root / "etc/modprobe.d/site.conf").write_text(f"{line}\n")
    node.write("does-not-load", NEW) if said is None else node.write("modprobe-says", said)
    done = node.load_next(NEW)
    assert (done.returncode, node.journal) == (1, journal), done.stderr
    assert (node.packages == BEFORE) is (journal != "done")
    assert ("--retry" in done.stderr) is (journal == "failed")
    assert ("No such device" in (node.state / "driver.json").read_text()) is (journal == "failed")


@pytest.mark.parametrize(
    "text", ["blacklist nvidia\n", "install nvidia modprobe -i nvidia-current\n", "#alias nvidia off"]
)
def test_lines_that_keep_no_module_from_loading_excuse_no_version(node: SimulatedDpkg, text: str) -> None:
    (node.root / "etc/modprobe.d").mkdir()
    (node.root / "etc/modprobe.d/site.conf").write_text(text)
    node.write("does-not-load", NEW)
    assert (node.change(NEW, *AFTER).returncode, node.journal, node.loaded) == (1, "failed", OLD)


def test_a_version_is_not_blamed_where_the_driver_of_before_does_not_load_any_more_either(node: SimulatedDpkg) -> None:
    node.write("does-not-load", NEW, OLD)
    done = node.change(NEW, *AFTER)
    assert (done.returncode, node.journal, node.packages, node.loaded) == (1, "restored", BEFORE, None)


def test_an_apt_that_dies_halfway_is_undone_and_may_be_tried_again(node: SimulatedDpkg) -> None:
    (node.state / "apt-dies").touch()
    done = node.change(NEW, *AFTER)
    assert (done.returncode, node.journal, node.packages) == (1, "restored", BEFORE)
    assert node.change(NEW, *AFTER).returncode == 0
    assert node.journal == "done"


def test_a_module_that_was_not_built_is_named_and_the_old_driver_comes_back(node: SimulatedDpkg) -> None:
    (node.state / "no-module").touch()
    done = node.change(NEW, *AFTER)
    assert (done.returncode, node.packages) == (1, BEFORE)
    assert unnamed(done.stderr, "none", "dkms status") == []


@pytest.mark.parametrize(
    ("log", "journal"),
    [
        ("error: implicit declaration of function", "failed"),
        ("write error: No space left on device", "restored"),
        ("gcc: fatal error: Killed signal terminated program cc1", "restored"),
    ],
)
def test_a_build_that_ran_out_of_room_or_memory_blames_no_version(node: SimulatedDpkg, log: str, journal: str) -> None:
    (node.state / "no-module").touch()
    file = node.root / f"var/lib/dkms/nvidia/{NEW}/build/make.log"
    file.parent.mkdir(parents=True)
    file.write_text(f"DKMS make.log for nvidia\n{log}\n")
    assert (node.change(NEW, *AFTER).returncode, node.journal, node.packages) == (1, journal, BEFORE)


def test_what_cannot_be_put_back_stays_journalled_until_a_later_run_has_done_it(node: SimulatedDpkg) -> None:
    node.write("does-not-load", NEW)
    node.write("repository", f"nvidia-open {OLD}-1", f"nvidia-open {NEW}-1", f"nvidia-smi {NEW}-1")
    done = node.change(NEW, *AFTER, rollback="best-effort")
    assert unnamed(done.stderr, "no way back", "nvidia-smi") == []
    assert (node.journal, node.packages["nvidia-open"]) == ("failed", BEFORE["nvidia-open"])

    again = SimulatedDpkg(node.state.parent / "again", nvidia_open=f"{OLD}-1", nvidia_smi=f"{OLD}-1")
    again.offer(f"nvidia-open {NEW}-1", f"nvidia-smi {NEW}-1")
    again.write("does-not-load", NEW)
    # The saved packages are lost between the change and its undoing.
    programs = Path(again.environment["PATH"].partition(":")[0])
    (programs / "dmesg").write_text(f"#!/bin/sh\nfor file in {again.state}/driver/debs/*; do : > $file; done\n")
    done = again.change(NEW, *AFTER)
    assert (done.returncode, again.journal) == (1, "began")
    assert "next run" in done.stderr
    for name in ("nvidia-open", "nvidia-smi"):
        (again.state / f"driver/debs/{name}_{OLD}-1_amd64.deb").write_text(f"{name} {OLD}-1\n")
    assert again.run("undo").returncode == 0
    assert (again.journal, again.packages) == ("restored", BEFORE)


def test_without_a_way_back_nothing_is_changed_unless_the_settings_go_on(node: SimulatedDpkg) -> None:
    node.write("repository", f"nvidia-open {NEW}-1", f"nvidia-smi {NEW}-1")
    done = node.change(NEW, *AFTER)
    assert (done.returncode, node.journal, node.packages) == (1, None, BEFORE)
    assert "driver.rollback = 'best-effort'" in done.stderr
    assert node.change(NEW, *AFTER, rollback="best-effort").returncode == 0
    assert (node.journal, node.loaded) == ("done", NEW)


def test_what_came_along_goes_again_and_marks_and_holds_are_as_before(node: SimulatedDpkg) -> None:
    node.write("manual", "nvidia-open")
    node.offer(f"nvidia-persistenced {NEW}-1")
    node.write("does-not-load", NEW)
    done = node.change(NEW, f"nvidia-open={NEW}-1", f"nvidia-persistenced={NEW}-1", "nvidia-smi-")
    assert (done.returncode, node.journal, node.packages) == (1, "failed", BEFORE)
    assert node.manual == {"nvidia-open"}


def test_a_first_installation_that_fails_leaves_no_package_behind(tmp_path: Path) -> None:
    node = SimulatedDpkg(tmp_path)
    node.offer(f"nvidia-open {NEW}-1", f"nvidia-smi {NEW}-1")
    node.write("smi", "9")
    done = node.change(NEW, *AFTER)
    assert (done.returncode, node.journal, node.packages, node.loaded) == (1, "failed", {}, None)


@pytest.fixture
def preferences(node: SimulatedDpkg) -> Path:
    """Return the file that keeps the driver's packages still, as a run reads it."""
    path = node.root / "etc/apt/preferences.d/gpunode-driver"
    path.parent.mkdir(parents=True)
    path.write_text("before\n")
    return path


def holding(read: str = "before\n") -> str:
    return f"/etc/apt/preferences.d/gpunode-driver {digest_of_text(read)}\n/etc/apt/apt.conf.d/gpunode-driver none"


def test_a_file_that_keeps_packages_still_and_that_somebody_changed_since_it_was_read_stops_the_change(
    node: SimulatedDpkg, preferences: Path
) -> None:
    preferences.write_text("by hand\n")
    done = node.change(NEW, *AFTER, holding=holding())
    assert (done.returncode, node.journal, node.packages) == (1, None, BEFORE)
    assert unnamed(done.stderr, f"changed {preferences}") == []
    assert node.change(NEW, *AFTER, holding=holding("by hand\n")).returncode == 0


def test_what_somebody_wrote_into_it_after_the_change_was_cut_off_is_kept_and_named(
    node: SimulatedDpkg, preferences: Path
) -> None:
    (node.state / "cut-before-done").touch()
    assert node.change(NEW, *AFTER, holding=holding()).returncode != 0
    assert node.journal == "began"
    preferences.write_text("by hand\n")
    unattended = node.root / "etc/apt/apt.conf.d/gpunode-driver"
    unattended.parent.mkdir()
    unattended.write_text("by hand, too\n")
    done = node.run("undo")
    assert (done.returncode, node.journal, node.packages) == (0, "restored", BEFORE), done.stderr
    assert preferences.read_text() == "before\n" and not unattended.exists()
    lost = [Path(f"{path}.gpunode-lost") for path in (preferences, unattended)]
    assert [path.read_text() for path in lost] == ["by hand\n", "by hand, too\n"]
    assert unnamed(done.stderr, *(f"kept as {path}" for path in lost)) == []


def test_what_holds_the_new_driver_goes_with_it_and_is_no_loss(node: SimulatedDpkg, preferences: Path) -> None:
    assert node.change(NEW, *AFTER, holding=holding()).returncode == 0
    # As the next operation of the same run does.
    preferences.write_text("of the new version\n")
    note = noted_command("driver", ["/etc/apt/preferences.d/gpunode-driver"]).get_raw_value()
    note = note.replace("/var/lib/gpunode/transactions", str(node.state)).replace("/etc/apt", f"{node.root}/etc/apt")
    subprocess.run(["sh", "-c", note], check=True, timeout=30)
    done = node.run("undo")
    assert (done.returncode, preferences.read_text(), node.packages) == (0, "before\n", BEFORE)
    assert "gpunode-lost" not in done.stderr and [path.name for path in preferences.parent.iterdir()] == [
        "gpunode-driver"
    ]
