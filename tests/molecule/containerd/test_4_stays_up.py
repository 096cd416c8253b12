"""A containerd that dies five seconds after its start: the verdict looks again, and the run is no success.

Real: containerd, systemd, its journal. SIMULATED: what ends it, a line of its unit's.
"""

from __future__ import annotations

import pytest

from tests.molecule.conftest import third_tier
from tests.molecule.containerd.conftest import Bench, Machine
from tests.support.containerd_files import known_file

OVERRIDE = "/etc/systemd/system/containerd.service.d/50-fault.conf"
AGAIN = "looking again in"
# Later than what the transaction waits for after its start, and before the end of the run.
_DIES = """cat > {override} <<'UNIT'
[Service]
Restart={restart}
ExecStartPost=/bin/sh -c "(sleep 5; kill -9 $MAINPID) &"
UNIT
systemctl daemon-reload"""


# The scenario docker has the like of it in the first tier.
@third_tier
@pytest.mark.parametrize("restart, found", [("always", ("restarting", "failed")), ("no", ("failed",))])
def test_a_containerd_that_dies_five_seconds_after_its_start_is_no_success(
    restart: str, found: tuple[str, ...], machines: tuple[Machine, ...], bench: Bench
) -> None:
    machine = machines[0]
    node = machine.node.name
    machine.start_with(known_file("kubeadm", machine.version))
    machine.out(_DIES.format(override=OVERRIDE, restart=restart))
    try:
        run = bench.whole(node)
        assert run.code == 1, run.printed
        assert AGAIN in run.printed, run.printed
        assert any(f"containerd: service is {each}, desired running" in run.printed for each in found), run.printed
        # In its journal's words.
        assert "Main process exited, code=killed, status=9/KILL" in run.printed
        assert "look at `journalctl -u containerd.service` on the node" in run.printed
    finally:
        machine.out(f"rm {OVERRIDE}; systemctl daemon-reload; systemctl reset-failed containerd")
    mended = bench.whole(node)
    assert mended.code == 0, mended.printed
    assert machine.serves() == "ok"
    started = machine.started()
    quiet = bench.whole(node)
    assert (quiet.code, quiet.operations("success")) == (0, {}), quiet.printed
    assert AGAIN not in quiet.printed, "nothing was started, and nothing is waited for"
    assert machine.started() == started
