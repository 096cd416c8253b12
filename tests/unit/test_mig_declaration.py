"""The MIG declaration: accepted and refused as nvidia-mig-parted does, every mistake with its path."""

import json
import string
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from gpunode.components.mig.cautions import cautions_of
from gpunode.settings.mig_parted.declaration import Declaration, parse_declaration, read_declaration
from gpunode.settings.mig_parted.document import DeclarationError, ProfileError, parse_profile

pytestmark = pytest.mark.pure

GOLDEN: dict[str, Any] = json.loads((Path(__file__).parent / "data" / "mig-declarations.json").read_text())
# nvidia-mig-parted takes the last one of a key given twice; gpunode refuses the file.
KEY_TWICE = "version: v2\nversion: v1"
HEAD = "version: v1\nmig-configs:\n  a:\n  - "


def _accepted(content: str) -> bool:
    """Say whether it is accepted; a refusal names the file, and for every mistake a path, in printable ASCII."""
    try:
        parse_declaration(content, "site.yaml")
    except DeclarationError as error:
        assert str(error).startswith("site.yaml: refused, ")
        assert error.mistakes
        for mistake in error.mistakes:
            assert mistake.path and mistake.message
            assert str(mistake).isascii() and str(mistake).isprintable(), mistake
            assert len(str(mistake)) < 1000
        return False
    return True


@pytest.mark.parametrize("template", GOLDEN["templates"], ids=lambda each: str(each["template"]).replace("\n", " "))
def test_every_value_in_every_place_is_judged_as_nvidia_mig_parted_does(template: dict[str, Any]) -> None:
    judged = {value: _accepted(template["template"].replace("@", value)) for value in GOLDEN["values"]}
    assert [value for value, accepted in judged.items() if accepted] == template["accepted"]


@pytest.mark.parametrize("accepted", [True, False])
def test_every_profile_and_document_is_judged_as_nvidia_mig_parted_does(accepted: bool) -> None:
    verdict = "accepted" if accepted else "refused"
    entry = "{devices: all, mig-enabled: true, mig-devices: {%s: 1}}"
    profiles = [HEAD + entry % json.dumps(profile) for profile in GOLDEN["profiles"][verdict]]
    for content in (*profiles, *GOLDEN["documents"][verdict]):
        assert _accepted(content) is (accepted and content != KEY_TWICE), content


def test_a_profile_is_the_same_in_every_spelling() -> None:
    assert parse_profile("1c.1g.10gb") == parse_profile("01g.10gb") and str(parse_profile("1c.1g.10gb")) == "1g.10gb"
    assert str(parse_profile("1c.3g.40gb").gpu_instance) == "3g.40gb"
    assert parse_profile("1g.24gb+me.all") != parse_profile("1g.24gb-me") != parse_profile("1g.24gb")
    with pytest.raises(ProfileError):
        parse_profile("1g.24gb+gfx-me")


def test_a_deeply_nested_document_is_refused_in_words() -> None:
    assert not _accepted("version: v1\nx: " + "[" * 1500 + "]" * 1500)


@pytest.mark.parametrize("content", [b"\xff\xfe", b"version: v1\x00", b" " * (1024 * 1024 + 1)])
def test_a_file_that_cannot_be_read_is_refused_in_words(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "mig.yaml"
    file.write_bytes(content)
    for unreadable in (file, tmp_path, tmp_path / "none.yaml", Path("a\0b")):
        with pytest.raises(DeclarationError):
            read_declaration(unreadable)


# Any text, any YAML, and any declaration with one thing wrong: never a traceback, always a path.

_KEYS = st.sampled_from(["version", "mig-configs", "devices", "mig-enabled", "mig-devices", "device-filter", "1g.5gb"])
_SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=12)
    | st.sampled_from(["v1", "all", "0x233010DE", "3g.40gb"])
)
_VALUES = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_KEYS | _SCALARS, inner, max_size=4),
    max_leaves=20,
)


@given(st.text() | st.text(alphabet="{}[]:,-&*!|>'\"%@#?\n\t v1aglb.0+<~"))
@example("a: &x [*x]")
@example("<<: 1")
@example("? ")
@example("!!binary =")
@example("!!python/object:os.system {}")
@example("- !!set {a, b}\n- !!omap [a: 1]\n- !<tag> x")
@example("0" * 5000)
@example("x: 0x" + "f" * 5000)
def test_any_text_is_taken_or_refused_in_words(content: str) -> None:
    _accepted(content)


@given(_VALUES)
def test_any_yaml_is_taken_or_refused_in_words(value: object) -> None:
    _accepted(yaml.safe_dump(value))


@given(_VALUES, st.sampled_from(["devices", "mig-enabled", "mig-devices", "device-filter"]))
def test_a_declaration_with_anything_in_one_place_is_refused_at_that_place_or_taken(value: object, key: str) -> None:
    entry = {"devices": "all", "mig-enabled": True, "mig-devices": {"1g.5gb": 1}, key: value}
    content = yaml.safe_dump({"version": "v1", "mig-configs": {"a": [entry]}})
    try:
        found = parse_declaration(content, "f")
    except DeclarationError as error:
        near = ("mig-configs.a[0].mig-devices", f"mig-configs.a[0].{key}")
        assert all(mistake.path.startswith(near) for mistake in error.mistakes), str(error)
        return
    assert isinstance(found, Declaration)
    cautions_of(found)


@given(st.text(alphabet=string.digits + "cgb+-.,me" + string.ascii_letters, max_size=16))
def test_a_profile_that_is_taken_is_written_so_that_it_is_taken_again(text: str) -> None:
    try:
        found = parse_profile(text)
    except ProfileError:
        return
    assert parse_profile(str(found)) == found
