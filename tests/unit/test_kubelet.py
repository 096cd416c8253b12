"""The kubelet's configuration: what its flags, file and drop-ins come to, and what of it a node is refused for."""

from __future__ import annotations

import base64
import hashlib
import os
import stat
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpunode.base.probe_output import checked
from gpunode.facts.cluster import Kubelet as Fact
from gpunode.system.kubelet import NOTED, parse_kubelet

pytestmark = pytest.mark.pure


@given(st.lists(st.text(st.characters(exclude_characters="\n\r", exclude_categories=["Cs"]), max_size=30)), st.text())
def test_any_arguments_and_any_file_are_read_or_have_no_configuration(arguments: list[str], text: str) -> None:
    encoded = base64.b64encode(text.encode(errors="replace")).decode()
    lines = ["kubelet=Kubernetes v1.29.3", *(f"argument={each}" for each in ("/usr/bin/kubelet", *arguments))]
    found = parse_kubelet([*lines, f"file=/etc/0 {encoded}"]).configuration
    assert found is None or isinstance(found.cgroup_driver, str)


def test_the_probe_reads_a_kubelet_that_runs_its_file_and_its_drop_ins_in_order(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("cgroupDriver: systemd\n")
    (tmp_path / "conf.d").mkdir()
    for name, policy in (("20-b.conf", "static"), ("10-a.conf", "none"), ("README", "wrong")):
        (tmp_path / "conf.d" / name).write_text(f"cpuManagerPolicy: {policy}\n")
    flags = (f"--config={tmp_path}/config.yaml", "--config-dir", f"{tmp_path}/conf.d")
    kubelet = subprocess.Popen(["sh", "-c", "read line", "kubelet", *flags], stdin=subprocess.PIPE)
    try:
        _program(tmp_path / "kubelet", "echo 'Kubernetes v1.29.3'")
        shown = f"Names=kubelet.service\\nLoadState=loaded\\nMainPID={kubelet.pid}"
        # Older than its files, by which it was started all the same.
        shown += "\\nActiveEnterTimestamp=Tue 2020-11-24 10:00:00.000000 UTC"
        _program(tmp_path / "systemctl", f"printf '{shown}\\n'")
        environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
        began = Path(f"/proc/{kubelet.pid}/stat").read_text().rpartition(")")[2].split()[19]
        read = [tmp_path / "config.yaml", tmp_path / "conf.d/10-a.conf", tmp_path / "conf.d/20-b.conf"]
        digests = [f"{hashlib.sha256(path.read_bytes()).hexdigest()} {path}" for path in read]
        (tmp_path / "noted").write_text("".join(f"{line}\n" for line in (f"{kubelet.pid} {began}", *digests)))
        command = Fact().command().replace(NOTED, str(tmp_path / "noted"))
        done = subprocess.run(["sh", "-c", command], env=environment, capture_output=True, text=True, check=True)
    finally:
        kubelet.communicate(b"\n", timeout=10)
    found = parse_kubelet(checked(done.stdout.splitlines()))
    assert found.version == "1.29.3" and found.configuration is not None
    assert (found.configuration.cgroup_driver, found.configuration.cpu_manager_policy) == ("systemd", "static")
    assert found.configuration.file == f"{tmp_path}/config.yaml" and not found.stale
    lines = checked(done.stdout.splitlines())
    assert parse_kubelet([line for line in lines if not line.startswith("noted=")]).stale


def _program(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
