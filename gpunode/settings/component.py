"""The base of every component's settings, and the kinds of text that they hold."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from types import UnionType
from typing import Annotated, Any, ClassVar, Self, Union, get_args, get_origin

from pydantic import AfterValidator, BaseModel, ConfigDict, PrivateAttr

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
# What a node takes as one argument of a command is 128 KiB; no setting comes near.
LONGEST = 1024


class Component(BaseModel):
    """Hold one component's settings: frozen, nothing unknown, nothing coerced.

    docs/settings.md has a component's docstring, and the text below each of its settings.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, validate_default=False)

    # What a setting was called before -> what it is called now; the old name is taken for one release.
    former: ClassVar[Mapping[str, str]] = {}
    _by_former_name: tuple[str, ...] = PrivateAttr(())

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """Return the settings of host data, of which some may have their former names; raises ValidationError."""
        old = tuple(name for name, now in cls.former.items() if name in values and now not in values)
        # The values as they are: strict validation knows a mapping only as a dict.
        settings = cls.model_validate({cls.former[name] if name in old else name: values[name] for name in values})
        settings._by_former_name = old
        return settings

    @property
    def by_former_name(self) -> tuple[tuple[str, str], ...]:
        """Return (former name, name) of each setting that host data gives by its former name."""
        return tuple((name, self.former[name]) for name in self._by_former_name)

    def contradictions(self) -> Iterator[tuple[str, str]]:
        """Yield (field, what is wrong) of values that are each allowed but not together."""
        yield from ()

    def beside(self, others: Mapping[str, Component]) -> Iterator[tuple[str, str]]:
        """Yield (field, what is wrong) of values that cannot stand beside what another component has."""
        yield from ()


def component_of(annotation: Any) -> type[Component] | None:
    """Return the model that a field has; None where it has none."""
    return annotation if isinstance(annotation, type) and issubclass(annotation, Component) else None


def alternatives(annotation: Any) -> tuple[Any, ...]:
    """Return what an annotation allows: each part of a union, else itself."""
    return get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)


def settings_or_mapping(annotation: Any) -> Any:
    """Return of what may be several things the one that has keys; else the annotation itself."""
    found = (each for each in alternatives(annotation) if component_of(each) or get_origin(each) is dict)
    return next(found, annotation)


def annotation_at(model: type[Component], path: Iterable[object]) -> Any:
    """Return what a setting may be; None where the settings have no such key, or its mapping any."""
    at: Any = model
    for name in path:
        at = settings_or_mapping(at)
        if component_of(at):
            field = at.model_fields.get(str(name))
            at = None if field is None else field.annotation
        else:
            at = get_args(at)[1] if get_origin(at) is dict else None
    return at


def plain(text: str) -> str:
    """Refuse what no setting needs and what would be dangerous on a command line or in a file."""
    if not text:
        raise ValueError("is empty; leave the key out instead")
    if len(text) > LONGEST:
        raise ValueError(f"has {len(text)} characters; {LONGEST} are the most")
    if _CONTROL.search(text):
        raise ValueError("contains a control character")
    if text.startswith("-"):
        raise ValueError("begins with '-', which programs read as an option")
    return text


def matching(pattern: str, desired: str) -> AfterValidator:
    """Return a validator for text that as a whole matches `pattern`; `desired` says the format in words."""
    compiled = re.compile(pattern, re.ASCII)

    def validate(text: str) -> str:
        if compiled.fullmatch(plain(text)) is None:
            raise ValueError(f"must be {desired}")
        return text

    return AfterValidator(validate)


LABEL = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
DnsLabel = Annotated[str, matching(LABEL, "lower-case letters, digits and '-' inside, 63 at most")]
ServiceUnit = Annotated[str, matching(r"[A-Za-z0-9@:._-]{1,240}\.service", "a unit such as 'k3s.service'")]
AbsolutePath = Annotated[str, matching(r"/([A-Za-z0-9._+@:=,-]+/?)*", "an absolute path, without spaces")]
FilePath = Annotated[str, matching(r"[A-Za-z0-9_./][A-Za-z0-9_./~+@:=,-]*", "the path of a file, without spaces")]
_EXACT = "an exact upstream version such as '580.95.05'; for the newest version of a branch, set driver.branch"
DriverVersion = Annotated[str, matching(r"\d{3}\.\d{2,3}(\.\d{2})?", _EXACT)]
Sha256 = Annotated[
    str, matching(r"[0-9a-f]{64}", "a SHA-256: 64 hexadecimal digits, lower case, as sha256sum prints it")
]
DriverBranch = Annotated[str, matching(r"\d{3}", "a driver branch such as '580'")]
# No major version of CUDA has had ten minor ones.
CudaVersion = Annotated[str, matching(r"\d{1,2}\.\d", "major.minor such as '12.9', a minor version of one digit")]
CudaRelease = Annotated[str, matching(r"\d{1,2}\.\d\.\d{1,2}", "major.minor.patch such as '12.9.1'")]
ToolkitVersion = Annotated[str, matching(r"\d+\.\d+\.\d+(-rc\.\d+)?", "a version such as '1.17.8' or '1.18.0-rc.1'")]
_RUNTIME = "a runtime's name such as 'nvidia': letters, digits, '.', '_' and '-', 63 at most"
RuntimeName = Annotated[str, matching(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", _RUNTIME)]
# Without a package's epoch and revision, which distributions choose: 1.6.20 fits 1.6.20~ds1-1+deb12u1.
UpstreamVersion = Annotated[
    str, matching(r"\d+(\.\d+)+", "an upstream version such as '1.7.24', without a package's revision")
]


_BRACED = re.compile(r"\{([^{}]*)\}")
_HOST = r"[A-Za-z0-9._-]+(:\d{1,5})?|\[[0-9A-Fa-f:]+\](:\d{1,5})?"
# $(ARCH) is apt's own substitution, $basearch and $releasever are dnf's; any other dollar sign or parenthesis has no
# place in an address.
_URL = rf"(https?://({_HOST})|file://)(/([A-Za-z0-9._~%+@:=,/{{}}-]|\$\(ARCH\)|\$basearch|\$releasever)*)?"

is_address = matching(_URL, "an http://, https:// or file:// address without user, query, blanks or quotes")


def holding_only(*placeholders: str) -> AfterValidator:
    """Return a validator for an address whose placeholders are among those named."""

    def validate(url: str) -> str:
        rest = _BRACED.sub("", url)
        unknown = [name for name in _BRACED.findall(url) if name not in placeholders]
        if unknown or "{" in rest or "}" in rest:
            raise ValueError(f"may hold only the placeholders {', '.join('{' + name + '}' for name in placeholders)}")
        return url

    return AfterValidator(validate)


def filled(url: str, **placeholders: str) -> str:
    """Return an address with its placeholders filled in; raise KeyError where it has one that is not given."""
    return _BRACED.sub(lambda match: placeholders[match[1]], url)
