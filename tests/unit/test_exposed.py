"""Files that root runs by and that others may write are found, by the real stat, links and folders too."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path, PurePath

import pytest

from gpunode.base.findings import FindingClass
from gpunode.base.probe import Probe, shell_text
from gpunode.base.probe_output import checked
from gpunode.components.mig.boot import RECORD, SCRIPT, UNIT
from gpunode.components.mps.change import APPLY, ENVIRONMENT, PROFILE
from gpunode.components.mps.daemon import UNITS
from gpunode.node.own_files.holds import PREFERENCES, UNATTENDED
from gpunode.node.verdict import judge
from gpunode.settings import settings_from
from gpunode.system.exposed import FILES, Exposed, ExposedFile, decide, parse_exposed
from tests.support.verify import GOOD

pytestmark = pytest.mark.pure

AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="a file of somebody else's is root's to make")


def read(*patterns: Path) -> Exposed:
    probe = Probe([(None, shell_text("system/exposed", FILES=" ".join(map(str, patterns))))])
    done = subprocess.run(["sh", "-c", probe], capture_output=True, text=True, check=True)
    return parse_exposed(checked(done.stdout.splitlines()))


def asked(*patterns: Path) -> tuple[ExposedFile, ...]:
    return read(*patterns).files


@AS_ROOT
@pytest.mark.real
@pytest.mark.parametrize(
    ("mode", "user", "group", "told"),
    [
        (0o644, 0, 0, False),
        (0o600, 0, 27, False),
        (0o664, 0, 0, False),
        (0o664, 0, 27, True),
        (0o646, 0, 0, True),
        (0o777, 0, 0, True),
        (0o644, 1000, 0, True),
        (0o400, 1000, 1000, True),
    ],
)
def test_who_may_write_a_file_is_told_by_owner_group_and_mode(
    tmp_path: Path, mode: int, user: int, group: int, told: bool
) -> None:
    file = tmp_path / "a b.toml"
    file.touch()
    file.chmod(mode)
    os.chown(file, user, group)
    assert asked(tmp_path / "*.toml") == ((ExposedFile(str(file), f"{mode:o}", user, group),) if told else ())


@AS_ROOT
@pytest.mark.real
def test_of_a_link_its_target_counts_and_the_folder_that_this_stands_in(tmp_path: Path) -> None:
    folder = tmp_path / "anybodys"
    folder.mkdir()
    folder.chmod(0o777)
    (folder / "real.toml").touch(0o644)
    (tmp_path / "config.toml").symlink_to(folder / "real.toml")
    (found,) = asked(tmp_path / "config.toml")
    assert (found.path, found.mode) == (str(folder), "777")
    (folder / "real.toml").chmod(0o666)
    assert {file.path for file in asked(tmp_path / "config.toml")} == {str(folder), str(tmp_path / "config.toml")}


@AS_ROOT
@pytest.mark.real
def test_links_to_several_folders_and_to_no_file(tmp_path: Path) -> None:
    for name in ("good", "bad", "units"):
        (tmp_path / name).mkdir(0o755)
        (tmp_path / name / "file").touch(0o644)
    (tmp_path / "bad").chmod(0o777)
    for name, target in (("a", "good/file"), ("b", "bad/file"), ("c", "bad/none"), ("d", "good/file")):
        (tmp_path / "units" / name).symlink_to(tmp_path / target)
    # systemd takes a unit away so, and everybody may write to that device.
    (tmp_path / "units" / "masked.service").symlink_to("/dev/null")
    assert [file.path for file in asked(tmp_path / "units", tmp_path / "units/*")] == [str(tmp_path / "bad")]


@AS_ROOT
@pytest.mark.real
@pytest.mark.parametrize(
    ("path", "mode", "told"),
    [
        ("auth.conf", 0o644, True),
        ("auth.conf.d/a", 0o644, True),
        ("auth.conf.d/a", 0o640, False),
        ("credentials.d/a b", 0o604, True),
        ("sources.list.d/a", 0o644, False),
    ],
)
def test_passwords_that_everybody_may_read(tmp_path: Path, path: str, mode: int, told: bool) -> None:
    file = tmp_path / "apt" / path
    file.parent.mkdir(parents=True)
    file.touch()
    file.chmod(mode)
    node = read(tmp_path / "apt", tmp_path / "apt/*", tmp_path / "apt/*/*")
    assert [each.path for each in node.readable] == ([str(file)] if told else []) and not node.files
    findings = [(item.code, item.finding_class) for item in decide(node).findings]
    assert (("node.files-with-passwords", FindingClass.DRIFT) in findings) is told


def test_patterns_that_fit_nothing_tell_nothing() -> None:
    assert asked(Path("/absent/*.toml"), Path("/absent")) == ()
    assert all(pattern.startswith("/") and " " not in pattern for pattern in FILES)


def test_files_that_gpunode_writes_or_root_runs_are_looked_at() -> None:
    paths = [
        *UNITS,
        APPLY,
        PROFILE,
        ENVIRONMENT,
        "/etc/nvidia-mps/node",
        UNIT,
        SCRIPT,
        RECORD,
        str(Path(RECORD).parent),
        PREFERENCES,
        UNATTENDED,
        "/etc/apt/sources.list.d/x.sources",
        "/etc/apt/trusted.gpg.d/x.gpg",
        "/etc/yum.repos.d/x.repo",
        "/etc/dnf/plugins/versionlock.conf",
        "/etc/zypp/repos.d/x.repo",
        "/etc/pacman.d/hooks/x.hook",
        "/etc/systemd/system/containerd.service.d/x.conf",
        "/etc/udev/rules.d/x.rules",
        "/etc/ld.so.conf.d/x.conf",
        "/etc/cron.daily/x",
        "/etc/gpunode/agent-signers",
        "/etc/dracut.conf.d/gpunode-nouveau.conf",
        "/etc/containers/containers.conf.d/50-gpunode.conf",
        "/etc/default/grub.d/x.cfg",
        "/etc/ld.so.preload",
    ]
    assert [path for path in paths if not any(PurePath(path).match(pattern) for pattern in FILES)] == []


def test_a_file_that_others_may_write_is_a_finding_of_its_own_with_its_command() -> None:
    (good,) = decide(GOOD.exposed).findings
    assert (good.finding_class, good.actual) == (FindingClass.OK, "root's alone")
    files = (ExposedFile("/etc/containerd/config.toml", "777", 0, 0), ExposedFile("/etc/docker", "755", 1000, 0))
    node = replace(GOOD, exposed=Exposed(files))
    (bad,) = [item for item in judge(settings_from({}), node) if item.what == "files that root runs by"]
    assert bad.finding_class is FindingClass.DRIFT
    assert bad.actual == "/etc/containerd/config.toml (777 0:0), /etc/docker (755 1000:0)"
    assert "chmod go-w /etc/containerd/config.toml /etc/docker`" in (bad.remedy or "")
