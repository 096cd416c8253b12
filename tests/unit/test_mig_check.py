"""`gpunode mig check`: the whole command, by exit code and by what it prints."""

import io
import json
import re
import sys
import textwrap
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from gpunode.cli import main
from tests.reference.schemas import mig_check_schema
from tests.support.messages import unnamed
from tests.support.mig_check import DECLARATION

pytestmark = pytest.mark.pure


@pytest.fixture
def file(tmp_path: Path) -> str:
    """Return a declaration's file."""
    path = tmp_path / "site.yaml"
    path.write_text(DECLARATION)
    return str(path)


class _Command:
    """Run `gpunode mig check` in this process, as the installed program does."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch, self._capsys = monkeypatch, capsys

    def __call__(self, *arguments: str) -> tuple[int, str, str]:
        self._monkeypatch.setattr(sys, "argv", ["gpunode", "mig", "check", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = self._capsys.readouterr()
        assert "Traceback" not in out + err
        code = ended.value.code
        return (code if isinstance(code, int) else 0), out, err

    def json(self, *arguments: str) -> tuple[int, dict[str, Any]]:
        """Return exit code and document, which is of the documented shape."""
        code, out, _ = self(*arguments, "--json")
        found: dict[str, Any] = json.loads(out)
        jsonschema.validate(found, mig_check_schema())
        return code, found


@pytest.fixture
def check(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> _Command:
    """Return the command."""
    return _Command(monkeypatch, capsys)


RTX = "version: v1\nmig-configs: {a: [{devices: all, mig-enabled: true, mig-devices: {1g.24gb+gfx: 2, 2g.48gb: 1}}]}\n"


@pytest.mark.parametrize(
    ("arguments", "code", "printed"),
    [
        ("FILE --all", 0, ["mixed: valid", "too-much: valid", "ampere: valid", "mig-configs.too-much[0].devices = -1"]),
        ("FILE --config mixed", 0, ["mixed: valid"]),
        ("FILE", 3, ["mig-configs", "allowed: mixed, too-much, ampere"]),
        ("none.yaml", 3, ["none.yaml"]),
        (".", 3, ["."]),
        ("FILE --config mixed --gpu H100-80GB", 0, ["H100-80GB", "3g.40gb:4 2g.20gb:2 1g.10gb:0 1g.10gb:1"]),
        ("FILE --config mixed --gpu 0x2330", 0, ["H100-80GB", "3g.40gb:4 2g.20gb:2 1g.10gb:0 1g.10gb:1"]),
        ("FILE --config mixed --gpu 0x233010DE", 0, ["H100-80GB", "3g.40gb:4 2g.20gb:2 1g.10gb:0 1g.10gb:1"]),
        (
            "FILE --config too-much --gpu H100-80GB", 2,
            ["2 x 3g.40gb + 1g.10gb", "2 x 3g.40gb; 3g.40gb + 1g.10gb; 3g.40gb + 2g.20gb + 1g.10gb"],
        ),
        ("FILE --config ampere --gpu H100-80GB", 2, ["ampere: not placed"]),
        ("FILE --config ampere --gpu A100-40GB", 0, ["1g.5gb:0"]),
        ("RTX --gpu RTX-PRO-6000", 1, ["undecided", "RTX-PRO-6000"]),
        ("--config all-balanced --gpu A30-24GB", 0, ["2g.12gb:2 1g.6gb:0 1g.6gb:1"]),
        ("--all --gpu RTX-PRO-6000", 0, ["RTX-PRO-6000"]),
        ("--config all-1g.5gb --gpu H100-80GB", 3, ["allowed: all-disabled, all-enabled, all-1g.10gb"]),
        ("", 64, ["Error"]),
        ("FILE --gpu H100", 64, ["Error"]),
        ("FILE --gpu 0x2236", 64, ["Error"]),
        ("FILE --config mixed --all", 64, ["Error"]),
        ("FILE OTHER", 64, ["Error"]),
        ("FILE --bogus", 64, ["Error"]),
        ("--config all-balanced", 64, ["Error"]),
    ],
)  # fmt: skip
def test_the_exit_status_says_what_was_found_and_the_output_names_it(
    check: _Command, tmp_path: Path, file: str, arguments: str, code: int, printed: list[str]
) -> None:
    (tmp_path / "rtx.yaml").write_text(RTX)
    files = {"FILE": file, "RTX": str(tmp_path / "rtx.yaml")}
    found, out, err = check(*(files.get(each, each) for each in arguments.split()))
    assert found == code and bool(err) is (code in (3, 64)) is (not out)
    assert unnamed(out + err, *printed) == []
    assert "= -1" not in out or "mixed" not in arguments, "odd things of other configurations are not told"


def test_a_mistake_is_refused_with_its_path(check: _Command, tmp_path: Path) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text(DECLARATION.replace("devices: all", "devices: any", 1))
    code, _, err = check(str(bad), "--all", "--gpu", "H100-80GB")
    assert code == 3 and unnamed(err, "mig-configs.mixed[0].devices = 'any'") == []
    code, found = check.json(str(bad), "--all")
    assert (code, found["verdict"]) == (3, "refused")
    assert [each["path"] for each in found["mistakes"]] == ["mig-configs.mixed[0].devices"]


def test_one_configuration_that_cannot_be_placed_decides_for_all(check: _Command, file: str) -> None:
    code, found = check.json(file, "--all", "--gpu", "H100-80GB")
    assert (code, found["verdict"]) == (2, "not placed")
    assert {name: each["verdict"] for name, each in found["configs"].items()} == {
        "mixed": "placed", "too-much": "not placed", "ampere": "not placed",
    }  # fmt: skip
    assert found["gpu"] == {"product": "H100-80GB", "device_ids": ["2330", "2331", "2322", "2324"]}
    (entry,) = found["configs"]["mixed"]["entries"]
    assert entry["create"] == ["3g.40gb:4", "2g.20gb:2", "1g.10gb:0", "1g.10gb:1"]
    assert entry["placements"][0] == {"profile": "3g.40gb", "start": 4, "size": 4, "compute_instances": [3]}
    (entry,) = found["configs"]["too-much"]["entries"]
    assert entry["nearest"][0] == {"3g.40gb": 2} and entry["create"] == []


def test_json_without_a_gpu_says_valid(check: _Command, file: str) -> None:
    code, found = check.json(file, "--config", "mixed")
    assert (code, found["verdict"], found["gpu"]) == (0, "valid", None)
    assert found["configs"]["mixed"]["entries"][0]["verdict"] is None


def test_standard_input_is_a_file(check: _Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(DECLARATION.encode())))
    code, out, _ = check("-", "--config", "mixed")
    assert (code, out) == (0, "standard input: mixed: valid\n")


def test_docs_mig_md_shows_what_the_command_prints(
    check: _Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (Path(__file__).resolve().parents[2] / "docs" / "mig.md").read_text(encoding="utf-8")
    declaration = text.partition("```yaml\n")[2].partition("```")[0]
    monkeypatch.chdir(tmp_path)
    Path("site.yaml").write_text(declaration)
    shown = re.findall(r"^    \$ gpunode mig check (.+)\n((?:    [^$\n].*\n)+)", text, re.MULTILINE)
    assert len(shown) == 2
    for arguments, expected in shown:
        _, out, _ = check(*arguments.split())
        assert out == textwrap.dedent(expected)
