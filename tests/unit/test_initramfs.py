"""Initial file systems: which are looked into, which are made anew, and what is there if that fails."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyinfra.context import ctx_host

from gpunode.deploys import driver as driver_deploy
from gpunode.facts.system import LOOKED_INTO
from gpunode.facts.system import Boot as BootFact
from gpunode.facts.transaction import FOLDER
from gpunode.node.components import desired_files
from gpunode.node.own_files import driver as own_files_of_driver
from gpunode.operations import initramfs
from gpunode.operations.initramfs import _REBUILD
from gpunode.operations.script import script
from gpunode.operations.transaction import transaction_text
from gpunode.settings import settings_from
from gpunode.system.boot import Boot, Kernel, parse_boot
from tests.support.operations import Recorder
from tests.support.simulated_host import Host, commands
from tests.support.verify import GOOD as GOOD_NODE

OLD, NEW = "6.1.0-9-amd64", "6.1.0-40-amd64"
BLACKLIST = "gpunode-nouveau.conf"
GOOD = f"usr/lib/modules/RELEASE/kernel/ext4.ko\netc/modprobe.d/{BLACKLIST}\n"
MAKES = 'release=$3; image=$BOOT/initrd.img-$release; text=$(sed "s/RELEASE/$release/" "$TEXT")\n'
# SIMULATED: an image is a text file with the names of what is in it; `end` is its last line.
PROGRAMS = {
    "lsinitramfs": 'cat "$1"; tail -n 1 "$1" | grep -qx end',
    "update-initramfs": MAKES + 'printf "%s\\nend\\n" "$text" > "$image.new" && mv "$image.new" "$image"',
}
FULL = MAKES + 'echo half > "$image.new"; rm "$image.new"; echo "No space left on device" >&2; exit 1'
TRUNCATED = MAKES + 'printf "%s\\n" "$text" > "$image.new" && mv "$image.new" "$image"'
SECOND_FAILS = MAKES + f'[ "$release" = {OLD} ] || exit 1\n' + PROGRAMS["update-initramfs"]
KILLED = PROGRAMS["update-initramfs"] + '\nkill -9 "$PPID"'


# SIMULATED: dracut writes into the file that is there, and lsinitrd sorts what its list comes to, whatever that is.
DRACUT = {
    "dracut": '[ "$1 $2" = "--quiet --force" ] || exit 3; release=$4; '
    'text=$(sed "s/RELEASE/$release/" "$TEXT"); printf "%s\\nend\\n" "$text" > "$3"',
    "lsinitrd": 'inside() { cat "$1"; tail -n 1 "$1" | grep -qx end; }\ninside "$1" | sort; exit $?',
}
CUT_OFF = DRACUT["dracut"].replace("end", "")
FAILS = 'echo half > "$3"; exit 1'


class Machine:
    """A folder with a /boot of two kernels, and the programs that make and list their images."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.boot, self.programs = folder, folder / "boot", folder / "bin"
        self.boot.mkdir()
        self.programs.mkdir()
        for release in (OLD, NEW):
            (self.boot / f"vmlinuz-{release}").touch()
            self.image(release).write_text(f"usr/lib/modules/{release}/nouveau.ko\nend\n")
        for name, text in PROGRAMS.items():
            self.install(name, text)

    def image(self, release: str) -> Path:
        return self.boot / f"initrd.img-{release}"

    def by_dracut(self, named: str) -> None:
        """Have dracut make the images, under the names that a distribution gives them."""
        for release in (OLD, NEW):
            self.image(release).rename(self.boot / named.replace("RELEASE", release))
        for name in PROGRAMS:
            (self.programs / name).unlink()
        for name, text in DRACUT.items():
            self.install(name, text)

    def install(self, name: str, text: str) -> None:
        (self.programs / name).write_text(f"#!/bin/sh\n{text}\n")
        (self.programs / name).chmod(0o755)

    def sh(self, *arguments: str | Path, text: str = GOOD) -> subprocess.CompletedProcess[str]:
        (self.folder / "text").write_text(text)
        path = f"{self.programs}:{os.environ['PATH']}"
        own = {"PATH": path, "BOOT": str(self.boot), "TEXT": str(self.folder / "text")}
        return subprocess.run(["sh", *arguments], env=own, capture_output=True, text=True, timeout=30, check=False)

    def rebuild(self, text: str = GOOD) -> subprocess.CompletedProcess[str]:
        """Run the transaction as the node would, with this folder for its own."""
        body = transaction_text(_REBUILD, "target-1", {"releases": f"{OLD} {NEW}", "blacklist": BLACKLIST})
        body = body.replace(FOLDER, str(self.folder / "state")).replace("/boot", str(self.boot))
        (self.folder / "state").mkdir()
        (self.folder / "rebuild.sh").write_text(script(body))
        return self.sh(self.folder / "rebuild.sh", "change", text=text)

    @property
    def files(self) -> dict[str, str]:
        return {path.name: path.read_text() for path in self.boot.glob("init*")}

    @property
    def state(self) -> str:
        return str(json.loads((self.folder / "state/initramfs.json").read_text())["state"])


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


APT = pytest.param("initrd.img-RELEASE", "update-initramfs", marks=pytest.mark.real)
RHEL = pytest.param("initramfs-RELEASE.img", "dracut", marks=pytest.mark.simulated)
SUSE = pytest.param("initrd-RELEASE", "dracut", marks=pytest.mark.simulated)


@pytest.mark.parametrize(("named", "program"), [APT, RHEL, SUSE])
def test_every_image_is_made_anew_and_nothing_else_is_left(machine: Machine, named: str, program: str) -> None:
    if program == "dracut":
        machine.by_dracut(named)
    # dracut is told to leave nouveau out, and needs no blacklist in the image.
    inside = GOOD.rstrip() if program != "dracut" else "usr/lib/modules/RELEASE/kernel/ext4.ko"
    done = machine.rebuild(f"{inside}\n")
    assert (done.returncode, machine.state) == (0, "done"), done.stderr
    assert machine.files == {
        named.replace("RELEASE", name): f"{inside.replace('RELEASE', name)}\nend\n" for name in (OLD, NEW)
    }


NOUVEAU = "usr/lib/modules/RELEASE/nouveau.ko\n"
UPDATE = PROGRAMS["update-initramfs"]


@pytest.mark.parametrize(
    ("named", "program", "does", "text", "ends", "says"),
    [
        pytest.param(*maker.values, *row, marks=maker.marks)
        for maker, rows in (
            (APT, [
                (FULL, GOOD, "restored", "room in /boot"),
                (TRUNCATED, GOOD, "restored", "be read to its end"),
                (SECOND_FAILS, GOOD, "restored", f"kernel {NEW} could not be made"),
                (UPDATE, f"etc/modprobe.d/{BLACKLIST}\n", "restored", "holds no module"),
                (UPDATE, NOUVEAU, "failed", f"lacks {BLACKLIST}"),
            ]),
            *((each, [
                (FAILS, GOOD, "restored", f"kernel {OLD} could not be made"),
                (CUT_OFF, GOOD, "restored", "be read to its end"),
                (DRACUT["dracut"], NOUVEAU.replace(".ko", ".ko.xz"), "failed", f"lacks {BLACKLIST}"),
            ]) for each in (RHEL, SUSE)),
        )
        for row in rows
    ],
)  # fmt: skip
def test_a_new_image_that_is_not_whole_or_not_right_gives_way_to_the_old_one(
    machine: Machine, named: str, program: str, does: str, text: str, ends: str, says: str
) -> None:
    if program == "dracut":
        machine.by_dracut(named)
    before = machine.files
    machine.install(program, does)
    done = machine.rebuild(text)
    assert done.returncode != 0
    assert (machine.files, machine.state) == (before, ends)
    assert says in done.stderr.replace(str(machine.boot), "/boot"), done.stderr


@pytest.mark.parametrize(("named", "program"), [RHEL, SUSE])
def test_dracut_s_images_are_looked_into_and_one_to_rescue_by_is_none_that_boots_next(
    machine: Machine, named: str, program: str
) -> None:
    machine.by_dracut(named)
    rescue = "0-rescue-8a6f"
    (machine.boot / f"vmlinuz-{rescue}").touch()
    (machine.boot / named.replace("RELEASE", rescue)).write_text("usr/lib/modules/x/nouveau.ko\nend\n")
    (machine.boot / named.replace("RELEASE", NEW)).write_text("cut off")
    found = {kernel.release: kernel.initramfs_nouveau for kernel in probed(machine).kernels}
    assert found == {OLD: True, NEW: None}


@pytest.mark.pure
@pytest.mark.parametrize(("family", "asked"), [("apt", False), ("dnf", True), ("zypper", True), ("pacman", False)])
def test_dracut_is_told_to_leave_nouveau_out_where_it_makes_the_images(
    monkeypatch: pytest.MonkeyPatch, family: str, asked: bool
) -> None:
    recorder = Recorder()
    monkeypatch.setattr(driver_deploy, "initramfs", recorder)
    monkeypatch.setattr(driver_deploy, "own_file", recorder.own_file)
    driver_deploy._keep_nouveau_out()
    told = [call.get("path") for call in recorder.calls]
    # Before the images are made anew, which takes it up.
    assert told == ["/etc/modprobe.d/gpunode-nouveau.conf", own_files_of_driver.DRACUT, None]
    system = {"apt": ("debian", "12"), "dnf": ("rocky", "9.5"), "zypper": ("sles", "15.6"), "pacman": ("arch", "")}
    identity, release = system[family]
    named = replace(GOOD_NODE.operating_system, id=identity, version_id=release)
    machine = replace(GOOD_NODE, operating_system=named)
    text = desired_files(settings_from({}), machine).get(own_files_of_driver.DRACUT)
    assert ('omit_drivers+=" nouveau "' in (text or "")) is asked


@pytest.mark.real
def test_a_rebuild_that_was_killed_is_undone_by_the_next_run(machine: Machine) -> None:
    before = machine.files
    machine.install("update-initramfs", KILLED)
    machine.rebuild()
    assert (machine.state, machine.files == before) == ("began", False)
    for _ in range(2):
        assert machine.sh(machine.folder / "rebuild.sh", "undo").returncode == 0
        assert (machine.state, machine.files) == ("restored", before)


def probed(machine: Machine, *blacklists: tuple[str, str]) -> Boot:
    """Return what the probe reads; each blacklist is (path below the folder, `before` or `after` the images)."""
    for path in machine.boot.glob("init*"):
        os.utime(path, (1, 1) if not blacklists or blacklists[0][1] == "after" else None)
    for name, moment in blacklists:
        file = machine.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("  blacklist nouveau\n")
        if moment == "before":
            for image in machine.boot.glob("initrd*"):
                os.utime(image, (file.stat().st_ctime + 10, file.stat().st_ctime + 10))
    text = BootFact().command().replace(LOOKED_INTO, str(machine.folder / "looked-into"))
    for place in ("/etc/modprobe.d", "/usr/lib/modprobe.d", "/lib/modprobe.d", "/boot"):
        text = text.replace(f" {place}/", f" {machine.folder}{place}/").replace(
            f'"{place}/', f'"{machine.folder}{place}/'
        )
    done = machine.sh("-c", text.replace("release=${image#/boot", f"release=${{image#{machine.boot}"))
    lines = [line for line in done.stdout.splitlines() if line.startswith(("running=", "kernel=", "blacklist="))]
    return parse_boot(lines)


WRITTEN = ("etc/modprobe.d/gpunode-nouveau.conf", "after")
NVIDIA_S = ("usr/lib/modprobe.d/nvidia-graphics.conf", "after")


@pytest.mark.real
@pytest.mark.parametrize(
    ("blacklists", "new", "found"),
    [
        ((), None, {OLD: True, NEW: True}),
        ((WRITTEN,), None, {OLD: True, NEW: True}),
        # Any of the blacklists will do.
        ((WRITTEN, NVIDIA_S), "usr/lib/modules/nouveau.ko\nusr/lib/modprobe.d/nvidia-graphics.conf\nend\n",
         {OLD: True, NEW: False}),
        # What cannot be read is unknown, and not good.
        ((), "half", {OLD: True, NEW: None}),
    ],
)  # fmt: skip
def test_an_image_with_nouveau_and_without_any_blacklist_is_found(
    machine: Machine, blacklists: tuple[tuple[str, str], ...], new: str | None, found: dict[str, bool | None]
) -> None:
    if new is not None:
        machine.image(NEW).write_text(new)
    boot = probed(machine, *blacklists)
    assert {kernel.release: kernel.initramfs_nouveau for kernel in boot.kernels} == found
    assert set(boot.with_nouveau) == {release for release, nouveau in found.items() if nouveau}
    assert (boot.blacklist_written is not None) == bool(blacklists)


@pytest.mark.real
def test_an_image_that_is_newer_than_a_blacklist_is_not_looked_into(machine: Machine) -> None:
    machine.install("lsinitramfs", f'touch {machine.folder}/looked; cat "$1"')
    found = probed(machine, ("etc/modprobe.d/own.conf", "before"))
    assert found.with_nouveau == () and not (machine.folder / "looked").exists()


@pytest.mark.real
@pytest.mark.parametrize("names", [("a-old.conf", "b-new.conf"), ("a-new.conf", "b-old.conf")])
def test_an_image_that_is_newer_than_the_oldest_blacklist_has_one(machine: Machine, names: tuple[str, str]) -> None:
    times = 'case "$how $file" in "%Z "*old.conf) echo 10;; "%Z "*) echo 30;; *) echo 20;; esac'
    machine.install("stat", f'how=$2; shift 2; for file in "$@"; do {times}; done')
    found = probed(machine, *((f"etc/modprobe.d/{name}", "after") for name in names))
    assert (found.with_nouveau, found.blacklist_written) == ((), 10.0)


@pytest.mark.real
def test_an_image_that_is_in_the_record_as_it_is_is_not_looked_into_again(machine: Machine) -> None:
    for release in (OLD, NEW):
        machine.image(release).write_text(f"usr/lib/modules/{release}/ext4.ko\nend\n")
    assert [kernel.initramfs_read for kernel in probed(machine, WRITTEN).kernels] == [True, True]
    (machine.folder / "looked-into").write_text(f"{OLD} 1\n{NEW} 2\n")
    found = {kernel.release: kernel.initramfs_read for kernel in probed(machine, WRITTEN).kernels}
    assert found == {OLD: False, NEW: True}


@pytest.mark.pure
@pytest.mark.parametrize("source", ["cuda-repository", "present"])
def test_nouveau_is_kept_out_after_the_packages_and_before_the_module_is_loaded(
    monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    recorder = Recorder()
    for name in ("files", "driver_packages", "kernel_module", "initramfs"):
        monkeypatch.setattr(driver_deploy, name, recorder)
    monkeypatch.setattr(driver_deploy, "own_file", recorder.own_file)
    monkeypatch.setattr(driver_deploy, "settings", lambda: settings_from({"driver": {"source": source}}))
    monkeypatch.setattr(driver_deploy, "node", lambda: GOOD_NODE)
    monkeypatch.setattr(driver_deploy, "trust", lambda name: None)
    monkeypatch.setattr(driver_deploy, "drain", lambda: None)
    monkeypatch.setattr(driver_deploy, "distribution", lambda: SimpleNamespace(family="apt"))
    with ctx_host.use(Host({})):
        inspect.unwrap(driver_deploy.driver)()
    told = [call["path"] if call["operation"] == "own_file" else call["operation"] for call in recorder.calls]
    nouveau = own_files_of_driver.NOUVEAU
    order = [name for name in told if name in ("installed", nouveau, "without_nouveau", "module_loaded")]
    assert order[-3:] == [nouveau, "without_nouveau", "module_loaded"]
    assert order[:-3] == (["installed"] if source == "cuda-repository" else [])
    (blacklist,) = [call["blacklist"] for call in recorder.calls if "blacklist" in call]
    assert nouveau == f"/etc/modprobe.d/{blacklist}"
    assert "blacklist nouveau\n" in str(desired_files(settings_from({}), GOOD_NODE)[nouveau])


KERNELS = (
    Kernel(OLD, headers=True, initramfs_written=1.0, initramfs_nouveau=True),
    Kernel(NEW, headers=True, initramfs_written=9.0),
)


@pytest.mark.pure
def test_what_loads_nouveau_is_made_anew_by_one_command(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    readings = iter([Boot(NEW, kernels=KERNELS), Boot(NEW, kernels=KERNELS[1:])])
    fact = host.get_fact
    monkeypatch.setattr(host, "get_fact", lambda asked, **more: next(readings) if asked is BootFact else fact(asked))
    assert len(commands(initramfs.without_nouveau, host, blacklist=BLACKLIST)) == 1
    assert (host.noops, host.refusals) == ([], [])


@pytest.mark.real
def test_a_kernel_s_module_its_signer_and_its_compiler_are_read(machine: Machine) -> None:
    """modinfo is SIMULATED."""
    told = "filename: /nvidia.ko\\nversion:        580.95.05\\nsigner:         DKMS  module signing key\\n"
    other = "filename: /nvidia-current.ko\\nversion: 535.1\\nsigner: other\\n"
    machine.install("modinfo", f'[ "$2" = {NEW} ] || exit 1; printf "{told}{other}"; exit 1')
    text = "#\n# Generated\n" + 'CONFIG_CC_VERSION_TEXT="gcc-12 (Debian 12.2.0-14+deb12u1) 12.2.0"\nCONFIG_X=y\n'
    (machine.boot / f"config-{NEW}").write_text(text)
    (machine.boot / f"config-{OLD}").write_text('CONFIG_CC_VERSION_TEXT="clang version 19.1.0"\n')
    old, new = sorted(probed(machine).kernels, key=lambda kernel: kernel.release, reverse=True)
    assert (new.module_version, new.module_signer, new.compiler) == ("580.95.05", "DKMS module signing key", "12")
    assert (old.release, old.module_version, old.module_signer, old.compiler) == (OLD, None, None, None)
