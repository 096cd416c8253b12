"""What the scenarios' tests share: the lab's nodes by testinfra over SSH, and pyinfra run as a user runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Collection, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import testinfra

from gpunode.base.findings import CLUSTER
from gpunode.facts.transaction import FOLDER
from gpunode.lab import nodes as lab_nodes
from gpunode.settings import component_models
from gpunode.settings.layers import REPLACE
from tests.support import warm

# What scenarios share says what it saw where it fails, as a test does.
pytest.register_assert_rewrite(
    *(
        f"tests.molecule.{name}"
        for name in ("driver_life", "driver_interruption", "driver_removal", "verified_node", "deviations.straying")
    )
)

CHECKOUT = Path(__file__).parent.parent.parent
LAB = os.environ.get("GPUNODE_LAB", "default")
ALL = os.environ.get("GPUNODE_TEST_ALL") == "1"
# The slow tests compile whole drivers.
SECONDS = 3600 if ALL else 900
# What a scenario has beyond the life of a node, where another scenario shows much the same in `make test`.
third_tier = pytest.mark.skipif(not ALL, reason="takes minutes, and its like is shown elsewhere (make test-all has it)")


def thinned(cases: Collection[str], *third: str) -> list[Any]:
    """Return the cases of a parametrized test, those named `third` only in the third tier."""
    assert set(third) <= set(cases), third
    return [pytest.param(case, marks=third_tier if case in third else ()) for case in cases]


# What a scenario tells at length: molecule swallows what a passing test prints, and a lab's own folder goes with it.
REPORTS = CHECKOUT / ".reports"


@dataclass(frozen=True)
class Run:
    """Hold a finished command: exit code, what it printed, and the JSON where it printed any."""

    code: int
    stdout: str
    stderr: str

    @property
    def printed(self) -> str:
        """Return everything that a person would have seen."""
        return self.stdout + self.stderr

    @property
    def payload(self) -> dict[str, Any]:
        """Return the JSON that it printed."""
        payload: dict[str, Any] = json.loads(self.stdout)
        return payload

    @property
    def findings(self) -> dict[str, list[dict[str, Any]]]:
        """Return host, or CLUSTER -> findings of `gpunode drift --json`."""
        cluster = self.payload.get("cluster")
        hosts = {**self.payload["hosts"], **({} if cluster is None else {CLUSTER: cluster})}
        return {name: host["findings"] for name, host in hosts.items()}

    def operations(self, outcome: str) -> dict[str, list[str]]:
        """Return operation name -> hosts with that outcome: success (it changed something), error or no_change."""
        found: dict[str, list[str]] = {}
        for operation in self.payload["results"]["operations"]:
            if operation[outcome]:
                found.setdefault(operation["name"].split(" | ")[-1], []).extend(operation[outcome])
        return found


def command(*arguments: str, **environment: str) -> Run:
    """Run a program of the environment in the checkout; pyinfra and gpunode from a process that has imported them."""
    told = {**os.environ, "NO_COLOR": "1", **environment}
    if arguments[0] in warm.PROGRAMS:
        lived = warm.run(*arguments, env=told, timeout=SECONDS)
        return Run(lived.returncode, lived.stdout, lived.stderr)
    done = subprocess.run(
        [Path(sys.executable).parent / arguments[0], *arguments[1:]],
        cwd=CHECKOUT, env=told, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=SECONDS, check=False,
    )  # fmt: skip
    return Run(done.returncode, done.stdout, done.stderr)


def converge(*options: str, inventory: str = "inventories/lab.py", **environment: str) -> Run:
    """Run the main job."""
    return command("pyinfra", "-y", "--json", *options, inventory, "deploys/gpu_node.py", **environment)


def inventory_with(folder: Path, data: dict[str, dict[str, object]]) -> str:
    """Write an inventory of the lab's nodes with more host data, and return its path.

    A component's mapping stands alone, whatever the lab's settings say of it.
    """
    components = component_models()
    data = {
        host: {
            name: {REPLACE: True, **value} if name in components and isinstance(value, dict) else value
            for name, value in more.items()
        }
        for host, more in data.items()
    }
    path = folder / "inventory.py"
    path.write_text(
        f"import runpy\n_found = runpy.run_path({str(CHECKOUT / 'inventories' / 'lab.py')!r})\n_more = {data!r}\n"
        "nodes = [(name, {**_data, **_more.get(name, {})}) for name, _data in _found['nodes']]\n"
    )
    return str(path)


def connect(node: lab_nodes.Node, user: str = "root") -> Any:
    """Return a testinfra host of a node, over SSH."""
    folder = CHECKOUT / ".lab" / LAB
    return testinfra.get_host(
        f"ssh://{user}@{node.address}",
        ssh_identity_file=str(folder / "id_ed25519"),
        ssh_extra_args=f"-o UserKnownHostsFile={folder}/known_hosts -o StrictHostKeyChecking=yes",
    )


def report(name: str) -> Path:
    """Return the path of a new, empty report in .reports."""
    REPORTS.mkdir(exist_ok=True)
    path = REPORTS / name
    path.write_text("")
    return path


def out(node: lab_nodes.Node, text: str, seconds: float = 300) -> str:
    """Return what a shell command prints on the node; it must succeed."""
    done = lab_nodes.run(node, text, timeout=seconds)
    assert done.returncode == 0, f"{node.name}: {text}: {done.stdout}{done.stderr}"
    return done.stdout.strip()


def run_to(code: int, inventory: str, *options: str, deploy: str = "deploys/gpu_node.py") -> Run:
    """Run a deploy, which must end with this exit code."""
    run = command("pyinfra", "-y", "--json", *options, inventory, deploy)
    assert run.code == code, run.printed
    return run


def bad(inventory: str, host: str) -> dict[str, dict[str, Any]]:
    """Return what of a host drift finds not as desired."""
    run = command("gpunode", "drift", "--json", inventory)
    return {item["what"]: item for item in run.findings[host] if item["class"] != "ok"}


def write(node: lab_nodes.Node, path: str, text: str) -> None:
    """Write a file of a node, with its folder."""
    out(node, f"mkdir -p {path.rpartition('/')[0]}; cat > {path} <<'END_OF_FILE'\n{text}END_OF_FILE")


def tried_before(run: Run, transaction: str) -> bool:
    """Say whether a run refused to try again what was put back: it names the log of the change."""
    return run.code != 0 and f"{FOLDER}/{transaction}.log" in run.printed and "--retry" in run.printed


@pytest.fixture
def nodes() -> tuple[lab_nodes.Node, ...]:
    """Return the lab's nodes."""
    return lab_nodes.nodes(LAB)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give a test that asks for `node_host` each of the lab's nodes."""
    if "node_host" in metafunc.fixturenames:
        every = lab_nodes.nodes(LAB)
        metafunc.parametrize("node_host", every, ids=[node.name for node in every], indirect=True)


@pytest.fixture
def node_host(request: pytest.FixtureRequest) -> Any:
    """Return a node by testinfra."""
    return connect(request.param)


@pytest.fixture(scope="module")
def plain() -> lab_nodes.Node:
    """Return the lab's first node made anew, without NVSwitches."""
    return lab_nodes.recreate(lab_nodes.node(LAB, "gpu-1"), gpu="h100-80gb")


@pytest.fixture(scope="module")
def board() -> lab_nodes.Node:
    """Return the lab's first node made anew, with NVSwitches: for the tests after those of `plain`."""
    return lab_nodes.recreate(lab_nodes.node(LAB, "gpu-1"), gpu="hgx-h100")


@pytest.fixture
def driver(tmp_path: Path) -> Any:
    """Return what asks for a driver on a node, and for nothing else (driver_alone.Driver)."""
    # That module is made of this one.
    from tests.molecule.driver_alone import Driver

    return Driver(tmp_path)


START_TIMES = "systemctl show -p Id,ExecMainStartTimestampMonotonic,MainPID '*.service' --state=running"


@pytest.fixture
def start_times() -> Callable[[lab_nodes.Node], str]:
    """Return a function that tells when each running service of a node started; SSH sessions' own units apart."""

    def read(node: lab_nodes.Node) -> str:
        blocks = lab_nodes.run(node, START_TIMES).stdout.split("\n\n")
        return "\n\n".join(sorted(block.strip() for block in blocks if "user@" not in block and "ssh@" not in block))

    return read


def _life(module: pytest.Module) -> list[pytest.Function]:
    """Return all tests of a file in its order, one round for each parameter of a fixture that several tests share."""

    def rounds(step: pytest.Function) -> list[int]:
        shared = {name for name, defs in step._fixtureinfo.name2fixturedefs.items() if defs[-1].scope != "function"}
        indices = step.callspec.indices if hasattr(step, "callspec") else {}
        return [index for name, index in sorted(indices.items()) if name in shared]

    return sorted((step for step in module.collect() if isinstance(step, pytest.Function)), key=rounds)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(session: pytest.Session, items: list[pytest.Item]) -> None:
    """Run the tests of a file with the mark `life` as the steps of one: in its order, and none without those before it.

    `life("test_other.py")` goes on from where that file of the same folder ends.
    """
    chosen, placed, ordered = {item.nodeid for item in items}, set[Path](), list[pytest.Item]()

    def place(module: pytest.Module, after: Collection[str], whole: bool) -> None:
        if module.path in placed:
            return
        whole = whole or module.path in gone_on_from
        placed.add(module.path)
        for name in after:
            path = module.path.with_name(name)
            before = next((each for each in modules if each.path == path), None)
            before = before or pytest.Module.from_parent(module.parent, path=path)
            place(before, (), whole=True)
        steps = _life(module)
        last = max((number for number, step in enumerate(steps) if step.nodeid in chosen), default=-1)
        ordered.extend(steps if whole else steps[: last + 1])

    modules = {module for item in items if (module := item.getparent(pytest.Module)) is not None}
    lives = [(item.path, item.get_closest_marker("life")) for item in items]
    gone_on_from = {path.with_name(name) for path, life in lives if life is not None for name in life.args}
    for item in items:
        life, module = item.get_closest_marker("life"), item.getparent(pytest.Module)
        if life is not None and module is not None:
            place(module, life.args, whole=False)
        elif module is None or module.path not in placed:
            ordered.append(item)
    items[:] = ordered


_broken: dict[Path, str] = {}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note the step of a life that failed."""
    report = yield
    if report.failed and item.get_closest_marker("life"):
        _broken.setdefault(item.path, item.name)
    return report


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what goes on from a step that failed."""
    life = item.get_closest_marker("life")
    for path in (item.path, *(item.path.with_name(name) for name in life.args)) if life else ():
        if path in _broken:
            pytest.skip(f"goes on from {_broken[path]}, which failed")
