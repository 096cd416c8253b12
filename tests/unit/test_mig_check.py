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
from gpunode.components.mig.check import schema
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
        jsonschema.validate(found, schema())
        return code, found


@pytest.fixture
def check(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> _Command:
    """Return the command."""
    return _Command(monkeypatch, capsys)


def test_a_valid_declaration_exits_0_with_its_cautions(check: _Command, file: str) -> None:
    code, out, err = check(file, "--all")
    assert (code, err) == (0, "")
    assert out.splitlines()[:3] == [f"{file}: {name}: valid" for name in ("mixed", "too-much", "ampere")]
    assert "caution: mig-configs.too-much[0].devices = -1: is the index of no GPU" in out
    code, out, _ = check(file, "--config", "mixed")
    assert (code, out) == (0, f"{file}: mixed: valid\n"), "cautions of other configurations are not told"


def test_several_configurations_and_no_name_are_refused(check: _Command, file: str) -> None:
    code, out, err = check(file)
    assert (code, out) == (3, "")
    assert "mig-configs: holds 3 configurations; say which one (--config NAME), or --all" in err
    assert "allowed: mixed, too-much, ampere" in err


def test_a_mistake_is_refused_with_its_path(check: _Command, tmp_path: Path) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text(DECLARATION.replace("devices: all", "devices: any", 1))
    code, _, err = check(str(bad), "--all", "--gpu", "H100-80GB")
    assert code == 3 and "mig-configs.mixed[0].devices = 'any': must be `all` or a list" in err
    code, found = check.json(str(bad), "--all")
    assert (code, found["verdict"]) == (3, "refused")
    assert [each["path"] for each in found["mistakes"]] == ["mig-configs.mixed[0].devices"]


@pytest.mark.parametrize("missing", ["none.yaml", "."])
def test_a_file_that_cannot_be_read_is_refused(check: _Command, tmp_path: Path, missing: str) -> None:
    code, _, err = check(str(tmp_path / missing))
    assert code == 3 and "cannot be read: " in err


@pytest.mark.parametrize("gpu", ["H100-80GB", "0x2330", "0x233010DE"])
def test_what_can_be_placed_exits_0_with_the_placements(check: _Command, file: str, gpu: str) -> None:
    code, out, _ = check(file, "--config", "mixed", "--gpu", gpu)
    assert code == 0
    assert "mixed: placed on H100-80GB" in out
    assert "mig-configs.mixed[0] (every GPU): 3g.40gb:4 2g.20gb:2 1g.10gb:0 1g.10gb:1" in out


def test_what_cannot_be_placed_exits_2_with_the_nearest_that_can(check: _Command, file: str) -> None:
    code, out, _ = check(file, "--config", "too-much", "--gpu", "H100-80GB")
    assert code == 2
    assert "not placed: 2 x 3g.40gb + 1g.10gb: they take 9 memory slices, and the GPU has 8" in out
    assert "nearest that fit: 2 x 3g.40gb; 3g.40gb + 1g.10gb; 3g.40gb + 2g.20gb + 1g.10gb" in out


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


def test_a_gpu_that_no_entry_is_for_exits_2(check: _Command, file: str) -> None:
    code, out, _ = check(file, "--config", "ampere", "--gpu", "H100-80GB")
    assert code == 2 and "no entry is for this GPU: it would be left as it is" in out
    assert check(file, "--config", "ampere", "--gpu", "A100-40GB")[0] == 0


def test_json_without_a_gpu_says_valid(check: _Command, file: str) -> None:
    code, found = check.json(file, "--config", "mixed")
    assert (code, found["verdict"], found["gpu"]) == (0, "valid", None)
    assert found["configs"]["mixed"]["entries"][0]["verdict"] is None


def test_what_nobody_can_decide_exits_1_and_says_so(check: _Command, tmp_path: Path) -> None:
    path = tmp_path / "rtx.yaml"
    path.write_text(
        "version: v1\nmig-configs: {a: [{devices: all, mig-enabled: true, mig-devices:"
        " {1g.24gb+gfx: 2, 2g.48gb: 1}}]}\n"
    )
    code, out, _ = check(str(path), "--gpu", "RTX-PRO-6000")
    assert code == 1 and "undecided: where instances of RTX-PRO-6000 may stand is not verified" in out


def test_published_configurations_need_no_file(check: _Command) -> None:
    code, out, _ = check("--config", "all-balanced", "--gpu", "A30-24GB")
    assert code == 0 and "2g.12gb:2 1g.6gb:0 1g.6gb:1" in out
    assert check("--all", "--gpu", "RTX-PRO-6000")[0] == 0
    code, _, err = check("--config", "all-1g.5gb", "--gpu", "H100-80GB")
    assert code == 3 and "allowed: all-disabled, all-enabled, all-1g.10gb" in err


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


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("FILE", "--gpu", "H100"),
        ("FILE", "--gpu", "0x2236"),
        ("FILE", "--config", "mixed", "--all"),
        ("FILE", "OTHER"),
        ("FILE", "--bogus"),
        ("--config", "all-balanced"),
    ],
)
def test_wrong_usage_exits_64(check: _Command, file: str, arguments: tuple[str, ...]) -> None:
    code, out, err = check(*(file if each == "FILE" else each for each in arguments))
    assert (code, out) == (64, "") and "Error: " in err
