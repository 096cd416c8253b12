"""What each command prints as JSON is one document, with the head that all have, and as its schema says."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import jsonschema
import pytest
from click.testing import CliRunner, Result

from gpunode import cli
from gpunode.base.findings import ExitCode, Finding, FindingClass
from gpunode.cli.plan import as_json
from gpunode.fleet.access import errors
from gpunode.fleet.call import Call
from gpunode.fleet.inventory import foreign_names
from gpunode.fleet.reports.plan_text import plan_text
from gpunode.fleet.reports.run_end import HostEnd, ends_of, report_of, status_of, verdict_text
from gpunode.fleet.run.progress import Progress
from gpunode.node.plan import Plan
from gpunode.node.recorded import FactsError, facts_json, read_facts
from gpunode.settings import settings_from
from tests.reference.output import SCHEMAS
from tests.support import warm
from tests.support.apply import CAN, GOOD, REFUSED, WAITS, _end, _plan, lab
from tests.support.ci_judgement import Machines, answer
from tests.support.command_line import HEAD, judged
from tests.support.simulated_rollout import Lab
from tests.support.verify import GOOD as NODE

__all__ = ["lab"]
pytestmark = pytest.mark.pure


def run(*words: str) -> Result:
    return CliRunner().invoke(cli.gpunode, list(words))


def test_every_schema_is_one_and_refuses_a_document_without_a_head() -> None:
    for command, schema in SCHEMAS.items():
        jsonschema.Draft202012Validator.check_schema(schema())
        assert set(schema()["required"]) >= HEAD, command
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({}, schema())


def test_cluster_prints_values_for_helm_without_a_head(tmp_path: Path) -> None:
    path = tmp_path / "labelled.py"
    path.write_text("nodes = [('a', {'kubernetes': {'enabled': True, 'version': '1.31'}})]\n")
    assert HEAD.isdisjoint(json.loads(run("cluster", "--values", "--json", str(path)).stdout))


def test_facts_are_one_document_in_every_mode_and_are_read_again(tmp_path: Path) -> None:
    host = {"ssh_hostname": "127.0.0.1", "ssh_port": 1, "ssh_connect_retries": 0}
    path = tmp_path / "fleet.py"
    path.write_text(f"nodes = [('a', {host}), ('b', {host})]\n")
    for mode in ("auto", "tty", "plain", "quiet", "json"):
        done = warm.run("gpunode", "facts", "--output", mode, "--limit", "a", path)
        found = judged("facts", done.stdout, 1)
        assert (found["counts"], found["limit"]) == ({"hosts": {"read": 0, "unreachable": 1}}, ["a"])
        assert "a: no facts: " in done.stderr
    (tmp_path / "facts.json").write_text(done.stdout)
    assert read_facts(tmp_path / "facts.json")[0].reason


def test_facts_of_an_older_gpunode_are_read_and_those_of_another_form_refused(tmp_path: Path) -> None:
    path = tmp_path / "facts.json"
    new = facts_json({"a": NODE}, Call("fleet.py").to_json())
    judged("facts", json.dumps(new), 0)
    old = {key: new[key] for key in ("schema", "gpunode", "hosts")}
    path.write_text(json.dumps(old))
    (read,) = read_facts(path)
    assert read.node is not None and read.node.driver == NODE.driver
    for schema in (0, 2, None):
        path.write_text(json.dumps({**new, "schema": schema}))
        with pytest.raises(FactsError, match=f"schema is {schema}"):
            read_facts(path)


def test_drift_and_rollout_count_nodes(lab: Lab) -> None:
    lab.find({"gpu-1": FindingClass.OK})
    found = judged("drift", run("drift", "--json", "fleet.py").stdout, 2)
    assert found["counts"]["hosts"] == {"drift": 3, "ok": 1}
    lab.fail("gpu-2")
    told = judged("rollout", run("rollout", "--json", "fleet.py").stdout, 2)
    counts = {"passed": 0, "failed": 1, "untouched": 2, "left_out": 1, "under_way": 0}
    assert told["counts"]["nodes"] == counts


def test_apply_prints_what_drift_prints_with_what_it_left_alone(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    _plan(monkeypatch, {"gpu-1": CAN, "gpu-2": CAN, "gpu-3": REFUSED, "gpu-4": errors.unreached("timed out")})
    _end(lab, HostEnd("gpu-1", findings=(*GOOD, WAITS)), HostEnd("gpu-2", left_alone="a cordon"))
    done = run("apply", "--yes", "--output", "json", "fleet.py")
    told = judged("apply", done.stdout, 1)
    classes = {name: host["class"] for name, host in told["hosts"].items()}
    assert classes == {"gpu-1": "reboot pending", "gpu-3": "unsupported", "gpu-4": "unreachable"}
    assert told["left_alone"] == {"gpu-2": "a cordon"} and told["inventory"] == "fleet.py"
    assert Path(told["log"]).is_file() and "gpu-1, gpu-2: " in done.stderr


def test_an_apply_of_which_no_node_takes_part_says_so(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    _plan(monkeypatch, {"gpu-1": REFUSED})
    done = run("apply", "--yes", "--output", "json", "fleet.py")
    assert judged("apply", done.stdout, 2)["log"] is None and lab.runs == []
    quiet = run("apply", "--yes", "--output", "quiet", "fleet.py")
    assert "mig: preflight: unsupported, gpu-1" in quiet.stdout and quiet.exit_code == 2


def test_a_quiet_apply_says_nothing_where_all_went_well(lab: Lab) -> None:
    done = run("apply", "--yes", "--output", "quiet", "fleet.py")
    assert (done.exit_code, done.output, len(lab.runs)) == (0, "", 1)


def test_ci_prints_a_document_also_where_a_machine_does_not_come_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machines = Machines(tmp_path, monkeypatch, answer("up", "refused"), answer("b", "refused"))
    done = machines.ci("--wait", "0", "--output", "json")
    assert judged("ci", done.stdout, 1)["counts"]["hosts"] == {"unreachable": 2}
    assert "\nup, b: " in f"\n{done.stderr}"


@pytest.mark.parametrize(
    ("item", "kind", "code"),
    [
        (errors.unreached("timed out. Remedy: wait"), "no answer", "node.connection"),
        (errors.unreadable("sudo asks"), "unreadable", "node.state"),
        (errors.unjudged(KeyError("x")), "cannot be judged", "node.state"),
    ],
)
def test_a_node_without_a_plan_is_told_with_reason_remedy_and_code(item: Finding, kind: str, code: str) -> None:
    plans: dict[str, Plan | Finding] = {"gpu-1": item, "gpu-2": Plan((), (), ())}
    assert plan_text(plans).splitlines()[:2] == [
        f"gpu-1: {kind}: {item.cause} [{code}]", f"  remedy: {item.remedy}",
    ]  # fmt: skip
    host = as_json(plans)["hosts"]["gpu-1"]
    assert host == {"verdict": "unreachable", "reason": item.cause, "remedy": item.remedy, "code": code}
    end, _ = ends_of(plans, Progress(0), 0)
    report = report_of(end)
    assert report is not None and report.findings == (item,) and status_of([end]) is ExitCode.ERROR
    assert verdict_text([end]).splitlines()[0].endswith(f"{item.finding_class}, gpu-1 [{code}]")


# What `gpunode init` writes, and the inventories of the repository.

FILES = {
    ".gitignore", "config.py", "deploys/gpu_node.py", "inventories/ci.py", "inventories/lab.py", "inventories/prod.py",
    *(f"inventories/group_data/{name}.py" for name in ("all", "ci", "lab", "prod")),
}  # fmt: skip


def _files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_the_repository_has_what_the_commands_of_its_last_lines_need(tmp_path: Path) -> None:
    done = warm.run("gpunode", "init", "mine", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert _files(tmp_path / "mine") == FILES
    for path in FILES - {".gitignore"}:
        assert (tmp_path / "mine" / path).read_text() == (warm.CHECKOUT / path).read_text()
    for command in ("check inventories/prod.py", "completion --help"):
        assert f"gpunode {command}" in done.stdout
    checked = warm.run("gpunode", "check", "inventories/prod.py", cwd=tmp_path / "mine")
    assert checked.returncode == 0, checked.stderr


@pytest.mark.parametrize("group", ["all", "ci", "lab", "prod"])
def test_the_groups_of_the_repository_are_right(group: str) -> None:
    data = runpy.run_path(str(warm.CHECKOUT / "inventories" / "group_data" / f"{group}.py"))
    settings_from(data, foreign_names())


def test_the_names_of_pyinfras_connectors_are_let_through() -> None:
    assert {"ssh_user", "ssh_key", "ssh_hostname", "ssh_known_hosts_file", "docker_platform"} <= foreign_names()
