"""Nothing that the plan does not name is restarted: no hook of a package manager, and what is left is reported."""

from __future__ import annotations

import base64
import subprocess
from pathlib import Path

import pytest

from gpunode.base.findings import FindingClass
from gpunode.base.probe import shell_text
from gpunode.base.probe_output import pairs
from gpunode.base.reading import Unknown
from gpunode.operations.driver_transaction import driver_transaction
from gpunode.operations.families import FAMILIES
from gpunode.operations.script import QUIET_HOOKS, script
from gpunode.operations.transaction import transaction_command
from gpunode.packages.installed_packages import judge, parse_outdated_services
from tests.support.programs import programs, sh

pytestmark = pytest.mark.simulated


def test_every_script_suspends_needrestart() -> None:
    said = subprocess.run(["sh", "-c", script("env")], capture_output=True, text=True, check=True).stdout
    assert {"NEEDRESTART_SUSPEND=1", "NEEDRESTART_MODE=l"} <= set(said.splitlines())


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_every_transaction_of_packages_is_such_a_script(family: str) -> None:
    manager = FAMILIES[family]
    command = manager.install(["a"], "cuda").get_raw_value()
    (change,) = transaction_command(driver_transaction(manager), "target").connector_arguments["_stdin"] or ()
    assert QUIET_HOOKS in command and QUIET_HOOKS in base64.b64decode(change).decode()


NEEDRESTART = "NEEDRESTART-VER: 3.6\nNEEDRESTART-SVC: ssh.service\nNEEDRESTART-SVC: users-job.service"
UNREAD: list[tuple[str, str]] = []
NAMED = [("service", "ssh.service"), ("service", "users-job.service")]


@pytest.mark.parametrize(
    ("tool", "code", "said", "printed"),
    [
        ("needrestart", 0, NEEDRESTART, NAMED),
        ("needrestart", 0, "NEEDRESTART-VER: 3.6", []),
        ("needrestart", 2, "Error parsing needrestart.conf", UNREAD),
        ("zypper", 0, "ssh.service\nusers-job.service", NAMED),
        ("zypper", 102, "ssh.service\nusers-job.service", NAMED),
        ("zypper", 4, 'Check failed: Please install package "lsof" first.'.replace('"', "'\\''"), []),
        ("zypper", 1, "Check failed", UNREAD),
        ("dnf5", 1, "ssh.service\nusers-job.service", NAMED),
        ("dnf5", 2, 'Unknown argument "needs-restarting"', []),
        ("dnf", 0, "ssh.service\nusers-job.service", NAMED),
        ("dnf", 1, "No such command: needs-restarting. Please use /usr/bin/dnf --help", []),
        ("dnf", 0, "", []),
        ("pacman", 0, "", []),
    ],
)
def test_what_the_node_s_tool_names_is_read(
    tmp_path: Path, tool: str, code: int, said: str, printed: list[tuple[str, str]]
) -> None:
    programs(tmp_path, {"find": "echo /var/lib/dpkg/status", tool: f"printf '%s\\n' '{said}'; exit {code}"})
    programs(
        tmp_path, {"sed": 'exec /bin/sed "$@"', "head": 'exec /usr/bin/head "$@"', "timeout": 'shift 3; exec "$@"'}
    )
    done = sh(tmp_path, f"PATH={tmp_path}\n{shell_text('packages/outdated_services', MINUTES='2')}")
    found = pairs(done.stdout.splitlines())
    assert done.returncode == 0 and (dict(found).keys() == {"unread"} if printed is UNREAD else found == printed)


def test_a_tool_is_not_called_where_no_package_changed(tmp_path: Path) -> None:
    programs(tmp_path, {"find": ":", "needrestart": "touch called"})
    done = sh(tmp_path, shell_text("packages/outdated_services", MINUTES="2"))
    assert (done.returncode, done.stdout) == (0, "") and not (tmp_path / "called").exists()


def test_the_services_are_a_caution_and_no_answer_changes_no_exit_code() -> None:
    (caution,) = judge(parse_outdated_services(["service=ssh.service", "service=users-job.service"]))
    assert caution.is_caution and caution.actual == "ssh.service, users-job.service" and not caution.is_negative
    for reading in (parse_outdated_services(["unread=zypper exits 1"]), Unknown("no answer")):
        (unread,) = judge(reading)
        assert unread.finding_class is FindingClass.NOT_KNOWN and not unread.is_negative
    assert judge(parse_outdated_services([])) == ()
