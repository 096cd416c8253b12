"""What a command imports before it does its work: what it needs, and what takes long only where it needs that."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from gpunode.base.importing import uncollected
from gpunode.cli import gpunode

pytestmark = pytest.mark.pure

CHECKOUT = Path(__file__).resolve().parents[2]
COMMANDS = sorted(gpunode.list_commands(click.Context(gpunode)))
# Any of them takes longer than the help of a command that needs none of it.
HEAVY = {
    "alembic", "gevent", "jinja2", "junitparser", "paramiko", "prometheus_client", "psycopg", "pydantic", "pyinfra",
    "pyinfra_cli", "rich", "sqlalchemy", "tomlkit", "yaml",
}  # fmt: skip
DRIVES_PYINFRA = {"gevent", "paramiko", "pyinfra", "pyinfra_cli"}
# Prints the modules that are there at the end, behind all that the program printed itself.
_TELLING = (
    "import sys; import atexit; import json; atexit.register(lambda: print('\\n' + json.dumps([*sys.modules])))\n"
)
_COMMAND = _TELLING + "from gpunode.cli import main; main()"


class Ended:
    """Hold how a program of Python ended: its status, what it printed, and which modules it had imported by then."""

    def __init__(self, program: str, *arguments: str, folder: Path = CHECKOUT) -> None:
        """Run the program."""
        done = subprocess.run(
            [sys.executable, "-c", program, *arguments], cwd=folder, capture_output=True, text=True, timeout=120,
            check=False, env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
        )  # fmt: skip
        said, _, told = done.stdout.rstrip("\n").rpartition("\n")
        self.status, self.out, self.err = done.returncode, said, done.stderr
        self.modules = set(json.loads(told))

    @property
    def packages(self) -> set[str]:
        """The names at the top: `rich` of rich.console."""
        return {name.partition(".")[0] for name in self.modules}


def test_the_list_of_commands_has_a_line_for_each_and_needs_click_and_nothing_else_that_was_installed() -> None:
    done, nothing = Ended(_COMMAND, "--help"), Ended(_TELLING)
    assert done.status == 0
    installed = done.packages - nothing.packages - set(sys.stdlib_module_names)
    assert installed == {"click", "gpunode"}
    listed = done.out.partition("Commands:")[2].splitlines()
    for name in COMMANDS:
        (line,) = [line.split(maxsplit=1) for line in listed if line.split()[:1] == [name]]
        assert len(line) == 2 and line[1][0].isupper()


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_a_command_needs_nothing_that_takes_long(name: str) -> None:
    done = Ended(_COMMAND, name, "--help")
    assert done.status == 0 and f"Usage: -c {name}" in done.out, done.err
    assert not done.packages & HEAVY


def test_a_command_that_there_is_not_is_wrong_usage() -> None:
    done = Ended(_COMMAND, "drfit")
    assert done.status == 64 and "drfit" in done.err and "Traceback" not in done.err


def test_a_plan_from_recorded_facts_needs_no_pyinfra(tmp_path: Path) -> None:
    (tmp_path / "facts.json").write_text(json.dumps({"schema": 0}))
    (tmp_path / "settings.yaml").write_text("{}\n")
    done = Ended(_COMMAND, "plan", "--facts", "facts.json", "--settings", "settings.yaml", folder=tmp_path)
    # It came as far as the judging: the file is refused, by what reads facts.
    assert done.status == 3 and "facts.json" in done.err
    assert "gpunode.node.recorded" in done.modules and not done.packages & DRIVES_PYINFRA


def _unreachable(folder: Path) -> str:
    # Nobody listens on this port.
    host = ("127.0.0.1", {"ssh_port": 1, "ssh_connect_retries": 0})
    (folder / "nodes.py").write_text(f"nodes = [{host!r}]\n")
    return "nodes.py"


def test_drift_loads_nothing_for_a_cluster_where_no_node_is_in_one_nor_a_display_where_nobody_looks(
    tmp_path: Path,
) -> None:
    done = Ended(_COMMAND, "drift", "--json", _unreachable(tmp_path), folder=tmp_path)
    assert done.status == 1 and json.loads(done.out)["hosts"], done.err
    assert {"gpunode.fleet.nodes", "gpunode.node.verdict", "pyinfra.api.facts"} <= done.modules
    assert "rich" not in done.packages
    of_clusters = {"gpunode.fleet.cluster", "gpunode.kubernetes.helm.session"}
    assert not done.modules & of_clusters


_COUNTING = """
from importlib import metadata
looked_up, asked = [], metadata.entry_points
metadata.entry_points = lambda **chosen: looked_up.append(chosen) or asked(**chosen)
"""


def test_what_is_installed_is_looked_up_once_for_all_that_ask(tmp_path: Path) -> None:
    program = (
        _TELLING + _COUNTING + "from gpunode.fleet.inventory import foreign_names, load_inventory\n"
        f"found = load_inventory({_unreachable(tmp_path)!r})\n"
        "print(len(found), 'ssh_port' in foreign_names(), looked_up)\n"
    )
    done = Ended(program, folder=tmp_path)
    # pydantic is there before, and asks for its own.
    assert done.out.splitlines()[0] == "1 True [{'group': 'pydantic'}, {}]", done.err


def test_pyinfra_comes_without_invoke_which_is_whole_where_somebody_uses_it(tmp_path: Path) -> None:
    program = (
        _TELLING + "from gpunode.fleet.inventory import load_inventory\n"
        f"load_inventory({_unreachable(tmp_path)!r})\n"
        "import paramiko.config\n"
        "print('invoke.runners' in sys.modules, paramiko.config.invoke.__module__)\n"
        "from invoke.runners import Local\n"
        "import invoke\n"
        "print(invoke.Local is Local, invoke.runners.Local is Local)\n"
    )
    done = Ended(program, folder=tmp_path)
    before, after = done.out.splitlines()[:2]
    # pyinfra's own stands in its place, whoever imports invoke.
    assert before == "False pyinfra.connectors.sshuserclient.config", done.err
    assert after == "True True"


def test_while_modules_are_imported_no_garbage_is_collected_and_it_is_afterwards_as_before() -> None:
    assert gc.isenabled()
    try:
        with uncollected():
            assert not gc.isenabled()
            with uncollected():
                pass
            assert not gc.isenabled()
        assert gc.isenabled() and gc.get_freeze_count()
        with pytest.raises(ImportError), uncollected():
            raise ImportError
        assert gc.isenabled()
        # A program that collects none keeps it so.
        gc.disable()
        with uncollected():
            pass
        assert not gc.isenabled()
    finally:
        gc.unfreeze()
        gc.enable()
