"""Which of the programs and paths that the toolkit's config.toml names are on a node."""

from __future__ import annotations

import os
import subprocess
from contextlib import nullcontext
from pathlib import Path

import pytest

from gpunode.base.probe_output import checked
from gpunode.base.toml_edit import ConfigurationRefused
from gpunode.components.runtimes.toolkit.configuration import PATH, faults
from gpunode.components.runtimes.toolkit.state import parse_toolkit
from gpunode.facts.toolkit import ContainerToolkit


@pytest.mark.real
def test_the_probe_looks_for_what_config_toml_names_on_the_path_and_at_its_place(tmp_path: Path) -> None:
    programs, configuration = tmp_path / "bin", tmp_path / "config.toml"
    programs.mkdir()
    for name, mode in (("lab-runc", 0o755), ("lab-notes", 0o644), ("ldconfig.real", 0o755)):
        (programs / name).write_text("#!/bin/sh\n")
        (programs / name).chmod(mode)
    configuration.write_text(
        f"""# runtimes = ['lab-commented']
[nvidia-container-runtime]
runtimes = ['lab-none', "lab-runc", 'lab-notes',
  '{programs}/lab-runc', '{programs}', '',
  "a\\u0020b"]
[nvidia-container-cli]
ldconfig = "@{programs}/ldconfig"
root = "{tmp_path}/gone\""""
    )
    text = str(ContainerToolkit().command()).replace(PATH, str(configuration))
    text = text.replace("=/usr/local/sbin:", f"={programs}:/usr/local/sbin:")
    done = subprocess.run(["sh", "-c", text], capture_output=True, text=True, check=True)
    found = dict(parse_toolkit(checked(done.stdout.splitlines())).files)
    assert {"runc", "crun"} < found.keys() and not {"lab-commented", "a\\u0020b"} & found.keys()
    assert {name: kind for name, kind in found.items() if name not in ("runc", "crun")} == {
        "lab-none": "-",
        "lab-runc": "x",
        "lab-notes": "e",
        f"{programs}/lab-runc": "x",
        str(programs): "e",
        "": "e",
        f"@{programs}/ldconfig": "x",
        f"{tmp_path}/gone": "-",
    }


# A device gives an empty file, and a link to a file that is not there is as no file: the toolkit takes its defaults.
@pytest.mark.real
@pytest.mark.parametrize(
    ("kind", "starts"), [("folder", False), ("pipe", False), ("loop", False), ("dangling", True), ("device", True)]
)
def test_what_is_not_a_file_in_the_place_of_config_toml_keeps_containers_from_their_start(
    tmp_path: Path, kind: str, starts: bool
) -> None:
    configuration = tmp_path / "config.toml"
    if kind == "folder":
        configuration.mkdir()
    elif kind == "pipe":
        os.mkfifo(configuration)
    else:
        targets = {"loop": configuration, "dangling": tmp_path / "gone/config.toml", "device": Path("/dev/null")}
        configuration.symlink_to(targets[kind])
    text = str(ContainerToolkit().command()).replace(PATH, str(configuration))
    done = subprocess.run(["sh", "-c", text], capture_output=True, text=True, check=True)
    state = parse_toolkit(checked(done.stdout.splitlines()))
    with nullcontext() if starts else pytest.raises(ConfigurationRefused):
        assert not faults(state, {}, None)
