"""What each command prints as JSON is one document, with the head that all have, and as its schema says."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner, Result
from referencing import Registry
from referencing.jsonschema import DRAFT202012

from gpunode import cli
from gpunode.base.document import error_schema
from gpunode.base.findings import FindingClass
from gpunode.fleet import no_answer
from gpunode.fleet.call import Call
from gpunode.fleet.reports.run_end import HostEnd
from gpunode.node import recorded
from gpunode.node.recorded import FactsError, facts_json, read_facts
from gpunode.reference.output import SCHEMAS
from tests.support import warm
from tests.support.apply import CAN, GOOD, REFUSED, WAITS, _end, _plan, lab
from tests.support.ci_judgement import Machines, answer
from tests.support.mig_check import DECLARATION
from tests.support.simulated_rollout import Lab
from tests.support.verify import GOOD as NODE

__all__ = ["lab"]
pytestmark = pytest.mark.pure
HEAD = {"schema", "gpunode", "at", "counts", "exit_code"}
KUBERNETES = {"kubernetes": {"enabled": True, "version": "1.31"}}


def judged(command: str, printed: str, status: int) -> dict[str, Any]:
    """Return the one document that was printed, after a look at its head and its schema."""
    found: dict[str, Any] = json.loads(printed)
    facts = DRAFT202012.create_resource(recorded.schema())
    registry = Registry().with_resource("../plan/facts.schema.json", facts)
    jsonschema.Draft202012Validator(SCHEMAS[command](), registry=registry).validate(found)
    assert found.keys() >= HEAD and found["exit_code"] == status
    return found


def run(*words: str) -> Result:
    return CliRunner().invoke(cli.gpunode, list(words))


def inventory(folder: Path, **data: Mapping[str, Any]) -> str:
    # pyinfra keeps a file's code by its name.
    path = folder / f"fleet{len(list(folder.iterdir()))}.py"
    path.write_text(f"nodes = {list(data.items())!r}\n")
    return str(path)


def test_every_schema_is_one_and_refuses_a_document_without_a_head() -> None:
    for command, schema in SCHEMAS.items():
        jsonschema.Draft202012Validator.check_schema(schema())
        assert set(schema()["required"]) >= HEAD, command
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({}, schema())


def test_check_says_how_many_are_right_and_what_is_refused(tmp_path: Path) -> None:
    bad = {"driver": {"branch": "570"}, "cuda": {"version": "13.0"}}
    done = run("check", "--json", inventory(tmp_path, a={}, b=bad))
    found = judged("check", done.stdout, done.exit_code)
    assert (found["counts"]["hosts"], found["ok"], done.exit_code) == ({"right": 1, "refused": 1}, False, 3)
    wrong = run("check", "--json", inventory(tmp_path, a={"drivr": {}}))
    assert judged("check", wrong.stdout, 3)["problems"][0]["key"] == "drivr"
    missing = run("check", "--json", str(tmp_path / "none.py"))
    assert judged("check", missing.stdout, 1)["code"] == "inventory.unreadable"


def test_cluster_prints_values_and_labels_behind_the_head(tmp_path: Path) -> None:
    path = inventory(tmp_path, a=KUBERNETES, b=KUBERNETES)
    found = judged("cluster", run("cluster", "--output", "json", path).stdout, 0)
    assert found["counts"]["hosts"] == {"inventory": 2, "labelled": 2} and set(found["labels"]) == {"a", "b"}
    assert HEAD.isdisjoint(json.loads(run("cluster", "--values", "--json", path).stdout)), "helm reads it"
    nobody = run("cluster", "--json", inventory(tmp_path, a={}))
    jsonschema.validate(json.loads(nobody.stdout), error_schema())
    assert nobody.exit_code == 2


def test_plan_counts_verdicts(tmp_path: Path) -> None:
    words = ("--facts", "docs/examples/plan/facts.json", "--settings", "docs/examples/plan/settings.yaml")
    done = warm.run("gpunode", "plan", "--json", *words)
    counts = judged("plan", done.stdout, done.returncode)["counts"]
    assert counts == {"hosts": {"can be done": 1, "refused": 1, "nothing to do": 1, "unreachable": 1}}


def test_facts_are_one_document_in_every_mode_and_are_read_again(tmp_path: Path) -> None:
    host = {"ssh_hostname": "127.0.0.1", "ssh_port": 1, "ssh_connect_retries": 0}
    path = inventory(tmp_path, a=host)
    for mode in ("auto", "tty", "plain", "quiet", "json"):
        done = warm.run("gpunode", "facts", "--output", mode, path)
        assert judged("facts", done.stdout, 1)["counts"] == {"hosts": {"read": 0, "unreachable": 1}}
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
        with pytest.raises(FactsError, match="reads 1;"):
            read_facts(path)


def test_mig_check_counts_configurations_and_says_its_exit_status(tmp_path: Path) -> None:
    (tmp_path / "site.yaml").write_text(DECLARATION)
    words = ("mig", "check", str(tmp_path / "site.yaml"), "--all", "--gpu", "H100-80GB", "--output", "json")
    done = run(*words)
    assert judged("mig check", done.stdout, 2)["counts"] == {"configs": {"placed": 1, "not placed": 2}}
    (tmp_path / "site.yaml").write_text("version: v2\n")
    assert judged("mig check", run(*words).stdout, 3)["verdict"] == "refused"


def test_init_says_what_it_wrote(tmp_path: Path) -> None:
    mine = str(tmp_path / "mine")
    done = run("init", mine, "--output", "json")
    found = judged("init", done.stdout, 0)
    assert str(tmp_path / "mine" / "config.py") in found["written"]
    assert found["counts"]["written"] == len(found["written"]) and "Next, in" in done.stderr
    again = run("init", mine, "--output", "json")
    jsonschema.validate(json.loads(again.stdout), error_schema())
    assert again.exit_code == 3
    assert run("init", str(tmp_path / "other"), "--output", "quiet").output == ""


def test_a_lab_is_a_document_also_where_it_is_not_up() -> None:
    found = judged("lab list", run("lab", "list", "--lab", "no-such-lab", "--json").stdout, 0)
    assert (found["lab"], found["nodes"], found["counts"]) == ("no-such-lab", [], {"nodes": {}})


def test_drift_and_rollout_count_nodes(lab: Lab) -> None:
    lab.find({"gpu-1": FindingClass.OK})
    found = judged("drift", run("drift", "--json", "fleet.py").stdout, 2)
    assert found["counts"]["hosts"] == {"drift": 3, "ok": 1}
    lab.fail("gpu-2")
    told = judged("rollout", run("rollout", "--json", "fleet.py").stdout, 2)
    counts = {"passed": 0, "failed": 1, "untouched": 2, "left_out": 1, "under_way": 0}
    assert told["counts"]["nodes"] == counts


def test_apply_prints_what_drift_prints_with_what_it_left_alone(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    _plan(monkeypatch, {"gpu-1": CAN, "gpu-2": CAN, "gpu-3": REFUSED, "gpu-4": no_answer.unreached("timed out")})
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


@pytest.mark.parametrize("command", ["plan", "drift", "facts", "apply", "rollout", "cluster", "ci"])
def test_settings_that_are_refused_are_a_document_of_the_error(command: str, tmp_path: Path) -> None:
    path = inventory(tmp_path, a={"driver": {"branch": 580}})
    # Nobody is there to be asked.
    asked = ["--yes"] if command == "apply" else []
    done = run(command, *asked, "--output", "json", path)
    found = json.loads(done.stdout)
    jsonschema.validate(found, error_schema())
    assert (found["exit_code"], done.exit_code) == (3, 3) and "driver.branch" in found["error"]
    assert found["problems"][0]["key"] == "driver.branch" and "driver.branch" in done.stderr
