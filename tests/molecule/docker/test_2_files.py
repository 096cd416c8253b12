"""Every file that people have is merged, and never replaced; the second run does nothing."""

from __future__ import annotations

import json

import pytest

from tests.molecule.conftest import thinned
from tests.molecule.docker.conftest import CONFIGURE, Bench, Machine, each

FILES = {
    "absent": None,
    "empty": "",
    # docker's own packages bring none: nvidia-docker2's, with a path that is none.
    "packaged": '{\n    "runtimes": {\n        "nvidia": {\n            "path": "nvidia-container-runtime",\n'
    '            "runtimeArgs": []\n        }\n    }\n}\n',
    # The storage driver of Kubernetes' example is left out: the lab's file system has none but vfs.
    "kubeadm's": '{\n  "exec-opts": ["native.cgroupdriver=systemd"],\n  "log-driver": "json-file",\n'
    '  "log-opts": {\n    "max-size": "100m"\n  }\n}\n',
    "by hand": '{\n\t"debug": false,\n\t"max-concurrent-downloads": 7,\n\t"live-restore": true,\n'
    '\t"runtimes": {"crun": {"path": "/usr/bin/crun"}},\n\t"labels": ["rack=7"]}',
}


@pytest.mark.parametrize("name", thinned(FILES, "empty", "packaged"))
def test_every_file_is_merged_and_never_replaced_and_the_second_run_does_nothing(
    name: str, machines: tuple[Machine, ...], bench: Bench
) -> None:
    text = FILES[name]
    each(machines, lambda machine: machine.start_with(text))
    run = bench.run()
    assert run.code == 0, run.printed
    assert len(run.operations("success")[CONFIGURE]) == len(machines), run.printed
    assert set(run.operations("success")) == {CONFIGURE}
    for machine in machines:
        before, after = json.loads(text or "{}"), json.loads(machine.text())
        kept = {key: after.get(key) for key in before if key not in ("runtimes", "exec-opts", "default-runtime")}
        assert kept == {key: value for key, value in before.items() if key in kept}
        others = {key: value for key, value in before.get("runtimes", {}).items() if key != "nvidia"}
        assert {**after["runtimes"], **others} == after["runtimes"]
        info = machine.info()
        assert (info["DefaultRuntime"], info["CgroupDriver"]) == ("nvidia", "systemd")
        assert info["Runtimes"]["nvidia"]["path"] == "/usr/bin/nvidia-container-runtime"
        assert info["LiveRestoreEnabled"] is (name == "by hand")
        assert ("crun" in info["Runtimes"]) is (name == "by hand")
    started = [machine.started() for machine in machines]
    again = bench.run()
    assert (again.code, again.operations("success")) == (0, {}), again.printed
    assert [machine.started() for machine in machines] == started


def test_spaces_and_the_order_of_keys_are_no_difference(machines: tuple[Machine, ...], bench: Bench) -> None:
    started = [machine.started() for machine in machines]
    for machine in machines:
        machine.write(json.dumps(json.loads(machine.text()), sort_keys=True))
    run = bench.run()
    assert (run.code, run.operations("success")) == (0, {}), run.printed
    assert [machine.started() for machine in machines] == started
