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
from gpunode.settings.mig_parted.declaration import Declaration, Entry, parse_declaration, read_declaration, selected
from gpunode.settings.mig_parted.mistakes import DeclarationError
from gpunode.settings.mig_parted.profile import ProfileError, parse_profile

pytestmark = pytest.mark.pure

GOLDEN: dict[str, Any] = json.loads((Path(__file__).parent / "data" / "mig-declarations.json").read_text())
HEAD = "version: v1\nmig-configs:\n  a:\n  - "


def _refusal(content: str) -> DeclarationError:
    with pytest.raises(DeclarationError) as refused:
        parse_declaration(content, "site.yaml")
    return refused.value


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


def _entry(text: str) -> Entry:
    return parse_declaration(HEAD + text, "site.yaml").configs["a"][0]


@pytest.mark.parametrize("template", GOLDEN["templates"], ids=lambda each: str(each["template"]).replace("\n", " "))
def test_every_value_in_every_place_is_judged_as_nvidia_mig_parted_does(template: dict[str, Any]) -> None:
    judged = {value: _accepted(template["template"].replace("@", value)) for value in GOLDEN["values"]}
    assert [value for value, accepted in judged.items() if accepted] == template["accepted"]


WHOLE = HEAD + "{devices: all, mig-enabled: false}\n"


@pytest.mark.parametrize("line", ["%YAML 1.2", "%YAML 1.0", "%YAML 2.0", "%YAML 1.2  # ours", "%NAME 1.1"])
def test_a_directive_that_the_tool_s_library_refuses_is_refused_with_its_line(line: str) -> None:
    (mistake,) = _refusal(f"# site\n{line}\n---\n{WHOLE}").mistakes
    directive = line.partition("  #")[0]
    assert str(mistake) == (
        f"(document) = '{directive}': is a directive in line 2 that nvidia-mig-parted refuses, which reads YAML 1.1; "
        "leave it out"
    )


@pytest.mark.parametrize("line", ["%YAML 1.1", "%YAML 1.1  # ours", "%TAG ! tag:ours,2026:"])
def test_a_directive_that_the_tool_s_library_takes_is_taken(line: str) -> None:
    assert _accepted(f"{line}\n---\n{WHOLE}")
    # Of a second document nobody reads anything.
    assert _accepted(f"{WHOLE}...\n%YAML 1.2\n---\nb: 1\n")


def test_every_profile_is_judged_as_nvidia_mig_parted_does() -> None:
    for verdict in ("accepted", "refused"):
        for profile in GOLDEN["profiles"][verdict]:
            content = f"{HEAD}{{devices: all, mig-enabled: true, mig-devices: {{{json.dumps(profile)}: 1}}}}"
            assert _accepted(content) == (verdict == "accepted"), profile


def test_every_document_is_judged_as_nvidia_mig_parted_does() -> None:
    for verdict in ("accepted", "refused"):
        for document in GOLDEN["documents"][verdict]:
            assert _accepted(document) == (verdict == "accepted"), document


@pytest.mark.parametrize(
    ("text", "path", "says"),
    [
        ("{mig-enabled: false}", "mig-configs.a[0].devices", "is missing"),
        ("{devices: all}", "mig-configs.a[0].mig-enabled", "is missing"),
        ("{devices: some, mig-enabled: false}", "mig-configs.a[0].devices", "must be `all` or a list"),
        ("{devices: [0, one], mig-enabled: false}", "mig-configs.a[0].devices[1]", "must be a whole number"),
        ("{devices: all, mig-enabled: 'no'}", "mig-configs.a[0].mig-enabled", "must be true or false, not a text"),
        ("{devices: all, mig-enabled: true}", "mig-configs.a[0].mig-devices", "is missing, and mig-enabled is true"),
        (
            "{devices: all, mig-enabled: false, mig-devices: {1g.5gb: 7}}",
            "mig-configs.a[0].mig-devices",
            "asks for instances, and mig-enabled is false",
        ),
        (
            "{devices: all, mig-enabled: true, mig-devices: {1g.5gb: -1, 2g.10gb: 1}}",
            "mig-configs.a[0].mig-devices['1g.5gb']",
            "a count must be 0 or more",
        ),
        (
            "{devices: all, mig-enabled: true, mig-devices: {3g: 1}}",
            "mig-configs.a[0].mig-devices.3g",
            "is no profile: must be Ng.Mgb",
        ),
        (
            "{devices: all, mig-enabled: true, mig-devices: {1g.5gb: 0}}",
            "mig-configs.a[0].mig-devices",
            "every count is 0",
        ),
        (
            "{devices: all, mig-enabled: false, device_filter: x}",
            "mig-configs.a[0].device_filter",
            "is an unknown key; did you mean 'device-filter'?",
        ),
        ("{devices: all, mig-enabled: false, device-filter: 5}", "mig-configs.a[0].device-filter", "must be a text"),
    ],
)
def test_a_mistake_is_named_with_its_path(text: str, path: str, says: str) -> None:
    (mistake,) = _refusal(HEAD + text).mistakes
    assert mistake.path == path
    assert says in mistake.message


def test_every_mistake_stands_in_one_message() -> None:
    error = _refusal("version: v2\nother: 1\nmig-configs:\n  'a b': []\n  c: [{devices: 5, mig-enabled: maybe}]\n")
    assert [mistake.path for mistake in error.mistakes] == [
        "version", "other", "mig-configs['a b']", "mig-configs.c[0].mig-enabled", "mig-configs.c[0].devices",
    ]  # fmt: skip
    assert str(error).startswith("site.yaml: refused, 5 mistakes:\n  version = 'v2': must be 'v1'\n")


def test_what_a_declaration_may_say_is_read_as_it_is_meant() -> None:
    assert _entry("{devices: all, mig-enabled: true, mig-devices: {}}") == Entry("mig-configs.a[0]", (), None, True, {})
    entry = _entry(
        "{device-filter: '0x233010DE:0x16C010DE', devices: [0, 2], mig-enabled: y,"
        " mig-devices: {3g.40gb: 1, 1g.10gb+me: 1, 1c.2g.20gb: 0}}"
    )
    assert entry.device_filter == ("0x233010DE:0x16C010DE",)
    assert entry.devices == (0, 2) and entry.has_index(2) and not entry.has_index(1)
    assert entry.mig_enabled and entry.mig_devices == {"3g.40gb": 1, "1g.10gb+me": 1, "1c.2g.20gb": 0}
    assert _entry("{device-filter: [a, b], devices: all, mig-enabled: false}").device_filter == ("a", "b")
    # A list with nothing in it is no filter; with an empty text in it, it lets nothing through.
    assert _entry("{device-filter: [], devices: all, mig-enabled: false}").device_filter == ()
    assert _entry("{device-filter: [null], devices: all, mig-enabled: false}").device_filter == ("",)


def test_a_profile_is_the_same_in_every_spelling() -> None:
    assert parse_profile("1c.1g.10gb") == parse_profile("01g.10gb") and str(parse_profile("1c.1g.10gb")) == "1g.10gb"
    assert str(parse_profile("1c.3g.40gb").gpu_instance) == "3g.40gb"
    assert parse_profile("1g.24gb+me.all") != parse_profile("1g.24gb-me") != parse_profile("1g.24gb")
    with pytest.raises(ProfileError, match=r"both \+attributes and -attributes"):
        parse_profile("1g.24gb+gfx-me")


def test_aliases_are_followed_but_not_without_end() -> None:
    assert "an alias repeats what it is part of" in str(_refusal("version: v1\nmig-configs: &a\n  x: *a\n"))
    ten = "\n".join(f"  l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 10)}]" for n in range(1, 6))
    error = _refusal(f"version: v1\nmig-configs:\n  l0: &l0 [a, b]\n{ten}\n")
    assert "more than 100000 values" in str(error)


def test_a_deeply_nested_document_is_refused_in_words() -> None:
    assert "nested too deeply" in str(_refusal("version: v1\nx: " + "[" * 1500 + "]" * 1500))


def test_one_configuration_is_meant_without_a_name_and_of_several_none() -> None:
    entry = "[{devices: all, mig-enabled: false}]"
    one = parse_declaration(f"version: v1\nmig-configs: {{only: {entry}}}", "f")
    two = parse_declaration(f"version: v1\nmig-configs: {{one: {entry}, two: {entry}}}", "f")
    assert (selected(one, None), selected(two, "two")) == ("only", "two")
    for declaration, name, path, says in (
        (two, None, "mig-configs", "holds 2 configurations; say which one"),
        (two, "tow", "mig-configs.tow", "there is no such configuration; did you mean 'two'?"),
        (parse_declaration("version: v1", "f"), None, "mig-configs", "there is no configuration in it"),
    ):
        with pytest.raises(DeclarationError) as refused:
            selected(declaration, name)
        (mistake,) = refused.value.mistakes
        assert mistake.path == path and says in mistake.message


@pytest.mark.parametrize("content", [b"\xff\xfe", b"version: v1\x00", b" " * (1024 * 1024 + 1)])
def test_a_file_that_cannot_be_read_is_refused_in_words(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "mig.yaml"
    file.write_bytes(content)
    for unreadable in (file, tmp_path, tmp_path / "none.yaml", Path("a\0b")):
        with pytest.raises(DeclarationError):
            read_declaration(unreadable)


# Beyond the tool: what it takes in silence.


def _cautions(text: str) -> list[str]:
    return list(map(str, cautions_of(parse_declaration(HEAD + text, "site.yaml"))))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "{devices: all, mig-enabled: true, mig-enabled: false}",
            "mig-configs.a[0].mig-enabled: the key stands twice; the last one counts",
        ),
        (
            "{device-filter: H100, devices: all, mig-enabled: false}",
            "mig-configs.a[0].device-filter = 'H100': is no PCI id such as '0x233010DE': it matches no GPU",
        ),
        (
            "{device-filter: ['0x2330'], devices: all, mig-enabled: false}",
            "mig-configs.a[0].device-filter = '0x2330': is not a GPU of NVIDIA's, whose ids end in 10DE: "
            "it matches no GPU",
        ),
        (
            "{device-filter: '0x223610DE', devices: all, mig-enabled: false}",
            "mig-configs.a[0].device-filter = '0x223610DE': is of no product with MIG that gpunode knows",
        ),
        (
            "{devices: [0, -1], mig-enabled: false}",
            "mig-configs.a[0].devices = -1: is the index of no GPU: indices count from 0",
        ),
        ("{devices: [1, 1], mig-enabled: false}", "mig-configs.a[0].devices = 1: stands 2 times"),
        ("{devices: [], mig-enabled: false}", "mig-configs.a[0].devices = []: is empty: the entry is for no GPU"),
        (
            "{devices: all, mig-enabled: true, mig-devices: {3g.41gb: 1}}",
            "mig-configs.a[0].mig-devices = '3g.41gb': no product that gpunode knows has this profile",
        ),
        (
            "{device-filter: '0x20B710DE', devices: all, mig-enabled: true, mig-devices: {3g.40gb: 1}}",
            "mig-configs.a[0].mig-devices = '3g.40gb': none of A30-24GB that gpunode knows has this profile",
        ),
        (
            "{devices: all, mig-enabled: true, mig-devices: {7g.80gb: 2}}",
            "mig-configs.a[0].mig-devices: no product that it is for can hold this layout (A100-80GB: 2 x 7g.80gb: "
            "of 7g.80gb the GPU holds 1 at most)",
        ),
        (
            "{devices: all, mig-enabled: true, mig-devices: {1g.5gb: 1, 7g.80gb: 1}}",
            "mig-configs.a[0].mig-devices: no product that it is for can hold this layout: none has all of these "
            "profiles",
        ),
        (
            "{devices: all, mig-enabled: true, mig-devices: {1g.5gb: 1, 1c.1g.5gb: 1}}",
            "mig-configs.a[0].mig-devices = '1c.1g.5gb': is the same profile as '1g.5gb': the two counts are added",
        ),
        (
            "{devices: all, mig-enabled: false}\n  - {devices: [4], mig-enabled: true, mig-devices: {}}",
            "mig-configs.a[1]: is for GPU 4 too, which mig-configs.a[0] is for: the later entry counts",
        ),
    ],
)
def test_what_the_tool_takes_in_silence_is_told(text: str, says: str) -> None:
    assert _cautions(text) == [says]


@pytest.mark.parametrize(
    "text",
    [
        "{devices: all, mig-enabled: true, mig-devices: {1g.35gb: 7}}",
        "{device-filter: ['0x233010DE', '0x20B010DE:0x134F10DE'], devices: [0], mig-enabled: false}",
        "{devices: [0], mig-enabled: false}\n  - {devices: [1], mig-enabled: true, mig-devices: {}}",
        "{device-filter: '0x233010DE', devices: all, mig-enabled: false}\n"
        "  - {device-filter: '0x20B010DE', devices: all, mig-enabled: true, mig-devices: {1g.5gb: 7, 2g.10gb: 0}}",
        "{devices: all, mig-enabled: true, mig-devices: {1g.24gb+gfx: 2, 2g.48gb: 1}}",
    ],
)
def test_what_is_as_it_should_be_is_not_cautioned_about(text: str) -> None:
    assert _cautions(text) == []


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
