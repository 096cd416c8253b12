"""Tables: what gpunode/data says, and that it says it in the right types."""

import json
import re
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from string import Formatter
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from gpunode.base import explanations, tables, versions
from gpunode.base.tables import reading
from gpunode.base.tables.sources import Toolkit
from gpunode.cli.plan import plan
from tests import pci_table
from tests.support.how_to import snippet

pytestmark = pytest.mark.pure

DATA = resources.files("gpunode.data")
# The only numbers that are counts or positions; all else with digits is a version or an id, and those are strings.
COUNTS = {"profiles", "profile_id", "compute", "starts", "size", "default_version", "needs_mib"}
COUNTS |= {"instances_with", "compute_starts", "zypper_exits"}


def _numbers(node: Any, place: str = "") -> Iterator[str]:
    """Yield where a number or a date stands that is no count."""
    if isinstance(node, dict):
        for key, value in node.items():
            yield from _numbers(key, f"{place} key")
            if key not in COUNTS:
                yield from _numbers(value, f"{place} {key}")
    elif isinstance(node, list):
        for value in node:
            yield from _numbers(value, place)
    elif not isinstance(node, str | bool):
        yield f"{place}: {node!r}"


@pytest.mark.parametrize("name", sorted(entry.name for entry in DATA.iterdir() if entry.name.endswith(".yaml")))
def test_every_version_in_yaml_is_a_string(name: str) -> None:
    assert list(_numbers(yaml.safe_load(DATA.joinpath(name).read_text(encoding="utf-8")))) == []


@pytest.mark.parametrize(
    ("good", "bad", "told"),
    [
        ('refresh_since: "1.18"', "refresh_since: 1.18", "refresh_since: .*string.* 1.18"),
        ("refresh_since:", "refreshes_since:", "refresh_since: .*required"),
        ("refresh_since:", "rest: 1\nrefresh_since:", "rest: .* 1"),
    ],
)
def test_a_wrong_table_is_told_with_file_place_and_what_is_allowed(
    good: str, bad: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = reading.text("toolkit.yaml").replace(good, bad)
    monkeypatch.setattr(reading, "text", lambda _: wrong)
    with pytest.raises(tables.TableError, match=rf"gpunode/data/toolkit\.yaml: .*{told}"):
        reading.table(Toolkit, "toolkit.yaml")()


@pytest.mark.parametrize(
    "rule",
    [rule for program in ("node", "zypper", "helm") for rule in explanations.rules(program)],
    ids=lambda rule: rule.said,
)
def test_cause_and_remedy_name_only_what_the_pattern_has(rule: explanations.Rule) -> None:
    named = {name for _, name, _, _ in Formatter().parse(rule.cause + rule.remedy) if name is not None}
    groups = set(re.compile(rule.said).groupindex)
    assert named <= groups | {"all", "host", "server", "settings", "url"}


def test_a_table_cannot_be_changed_by_who_reads_it() -> None:
    with pytest.raises(TypeError):
        tables.drivers().branches["1"] = tables.drivers().branches["580"]  # type: ignore[index]


def test_the_cuda_table_knows_drivers_and_what_it_dropped() -> None:
    table = tables.cuda()
    for text in (*table.toolkit_driver, *table.toolkit_driver.values(), *table.minor_version_compatibility.values()):
        assert versions.parsed(text)
    assert (table.full_driver("12.9"), table.minor_driver("12.9")) == ("575.57.08", "525.60.13")
    assert table.minor_driver("10.2") is None
    volta = [version for version in ("12.9", "13.0", "13.1") if "volta" in table.dropped_generations(version)]
    assert volta == ["13.0", "13.1"] and not table.dropped_generations("12.9")


@pytest.mark.parametrize("product", pci_table.RULE["examples"])
def test_the_pci_table_agrees_with_the_examples_in_generation_and_chip(product: str) -> None:
    example = pci_table.RULE["examples"][product]
    for device in map(tables.pci_device, example["ids"]):
        assert device is not None and device.generation == example["generation"]
        if device.chip != "unknown" and device.generation != "grace-hopper":
            assert pci_table.RULE["chip_prefix"][device.chip[:2]] == device.generation


def test_the_pci_table_records_its_origin_and_licence() -> None:
    head = json.loads(DATA.joinpath("pci_ids.json").read_text(encoding="utf-8"))
    assert re.fullmatch(r"20\d\d\.\d\d\.\d\d", head["version"])
    assert "BSD-3-Clause" in head["licence"]
    assert head["date"].startswith(head["version"].replace(".", "-"))


def test_pci_table_takes_gpus_of_nvidia_only_and_examples_win() -> None:
    table = json.loads(pci_table.table((Path(__file__).parent / "data" / "pci.ids").read_text()))
    assert table["version"] == "2025.01.02"
    found = table["devices"]
    assert found["2236"] == {"name": "A10", "chip": "GA102GL", "generation": "ampere"}
    assert found["2342"]["generation"] == "grace-hopper"
    assert found["2330"] == {"name": "H100", "chip": "unknown", "generation": "hopper"}
    assert not {"0008", "10F7", "22A3", "2237"} & set(found)


def test_pci_table_refuses_what_is_no_pci_ids(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "other").write_text("hello\n")
    words: tuple[list[str], ...] = ([str(tmp_path / "other")], [str(tmp_path / "missing")], [])
    assert [pci_table.main(each) for each in words] == [1, 1, 64]
    assert "pci.ids" in capsys.readouterr().err


def test_every_public_repository_has_a_full_fingerprint() -> None:
    assert set(tables.repositories()) == {"cuda", "toolkit", "docker"}
    for repository in tables.repositories().values():
        assert re.fullmatch(r"[0-9A-F]{40}", repository.key_fingerprint)


# The rows that docs/how-to/add-a-distribution.md has people enter.

CACHED = (tables.distributions, tables.driver_sources)


@pytest.fixture
def centos_stream(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Enter the rows of the page in the tables."""
    text = reading.text
    page = "add-a-distribution.md"
    distribution, system = (yaml.safe_load(snippet(page, name))[0] for name in ("distributions", "systems"))

    def with_rows(name: str) -> str:
        content = yaml.safe_load(text(name))
        if name == "distributions.yaml":
            content["distributions"].append(distribution)
        elif name == "driver_packages.yaml":
            for row in content["sources"]:
                if row["source"] == system["source"] and system["like"] in row["systems"]:
                    row["systems"].append(system["id"])
        else:
            return text(name)
        return yaml.safe_dump(content, sort_keys=False)

    monkeypatch.setattr(reading, "text", with_rows)
    for table in CACHED:
        table.cache_clear()
    yield
    monkeypatch.undo()
    for table in CACHED:
        table.cache_clear()


def decided(tmp_path: Path) -> tuple[int, dict[str, Any]]:
    """Return exit code and verdict of `gpunode plan` for the page's machine with an H100."""
    gpu = {"address": "0000:1a:00.0", "device_id": "2330", "name": "H100 SXM5 80GB", "generation": "hopper"}
    system = json.loads(snippet("add-a-distribution.md", "operating-system"))
    facts = {"schema": 1, "hosts": {"gpu-1": {"facts": {"operating_system": system, "pci": {"gpus": [gpu]}}}}}
    (tmp_path / "facts.json").write_text(json.dumps(facts))
    (tmp_path / "settings.yaml").write_text("driver: {branch: '580'}\ncontainerd: {source: docker-repository}\n")
    arguments = ["--facts", str(tmp_path / "facts.json"), "--settings", str(tmp_path / "settings.yaml"), "--json"]
    done = CliRunner().invoke(plan, arguments)
    return done.exit_code, json.loads(done.output)["hosts"]["gpu-1"]


@pytest.mark.usefixtures("centos_stream")
def test_the_rows_of_the_page_make_a_distribution_that_can_be_planned(tmp_path: Path) -> None:
    code, verdict = decided(tmp_path)
    assert code == 0, verdict
    assert "nvidia-open" in json.dumps(verdict)


def test_without_them_it_is_refused(tmp_path: Path) -> None:
    code, verdict = decided(tmp_path)
    assert code == 2 and "CentOS Stream 9" in json.dumps(verdict)
