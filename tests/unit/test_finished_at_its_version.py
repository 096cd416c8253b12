"""What apt is told when a change of the driver was cut off: it is finished at its versions. apt and dpkg are stubs."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpunode.base.shell_file import script_file
from tests.support.shell import programs, sh


def _asked(tmp_path: Path, script: str, **variables: str) -> list[str]:
    """Return what apt-get was called with."""
    stubs = dict.fromkeys(("apt_config", "apt_mark", "dpkg", "dpkg_query"), "true")
    path = programs(tmp_path, apt_get=f'echo "$*" >> {tmp_path}/log', **stubs)
    done = sh(script, shell=("sh", "-eu"), env={"PATH": path, **variables})
    assert done.returncode == 0, done.stderr
    return (tmp_path / "log").read_text().splitlines()


@pytest.mark.parametrize("cut_off", [True, False])
def test_what_dpkg_was_killed_at_is_finished_as_the_change_of_the_driver_pins_it(tmp_path: Path, cut_off: bool) -> None:
    folder = tmp_path / "driver"
    folder.mkdir()
    if cut_off:
        (folder / "preferences").touch()
    script = script_file("apt_get", "apt_finish").replace("/var/lib/gpunode/transactions/driver", str(folder))
    pinned = f"{folder}/preferences" if cut_off else "/etc/apt/preferences"
    assert any(f"Dir::Etc::Preferences={pinned} --fix-broken install" in line for line in _asked(tmp_path, script))


@pytest.mark.parametrize("cut_off", [True, False])
def test_a_first_driver_that_was_cut_off_is_finished_as_its_own_change_pins_it(tmp_path: Path, cut_off: bool) -> None:
    if cut_off:
        (tmp_path / "preferences").touch()
    script = f"{script_file('apt_get', 'apt_mark', 'apt_driver')}\nfinish_first || true"
    asked = _asked(tmp_path, script, checkpoint=str(tmp_path), names="nvidia-open", own=".", foreign="^$")
    pinned = f"{tmp_path}/preferences" if cut_off else "/etc/apt/preferences"
    assert any(f"Dir::Etc::Preferences={pinned} --fix-broken install" in line for line in asked)
