"""Settings: what is taken, what is refused, and how it is said."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpunode.reference import settings as reference
from gpunode.settings import Problem, SettingsError, check_hosts, component_models, settings_from

pytestmark = pytest.mark.pure


def _problems(data: dict[str, Any]) -> tuple[Problem, ...]:
    with pytest.raises(SettingsError) as refused:
        settings_from(data, ())
    return refused.value.problems


def _only(data: dict[str, Any]) -> Problem:
    (problem,) = _problems(data)
    return problem


def test_no_settings_at_all_are_the_defaults() -> None:
    settings = settings_from({})
    assert (settings.driver.branch, settings.driver.version) == (None, None), "what the distribution has"
    assert settings.cuda.version == "12.9"
    assert settings.containerd.default_runtime == "nvidia"
    assert settings.disruption.allow == "restart"


def test_a_version_brings_its_branch() -> None:
    assert settings_from({"driver": {"version": "570.124.06"}}).driver.branch == "570"


def test_a_present_driver_is_of_any_branch() -> None:
    assert settings_from({"driver": {"source": "present"}}).driver.branch is None


@pytest.mark.parametrize(
    ("data", "key", "says"),
    [
        ({"driver": {"branch": 580}}, "driver.branch", "quote it, '580'"),
        ({"cuda": {"version": 12.9}}, "cuda.version", "quote it, '12.9'"),
        ({"cuda": {"version": "12"}}, "cuda.version", "major.minor"),
        ({"cuda": {"version": "12.7"}}, "cuda.version", "is no CUDA release"),
        ({"cuda": {"version": "99.1", "source": "runfile"}}, "cuda.version", "a .run file bears its driver's version"),
        ({"cuda": {"enabled": "yes"}}, "cuda.enabled", "True or False, not str"),
        ({"cuda": {"enabled": 1}}, "cuda.enabled", "True or False, not int"),
        ({"driver": {"verson": "580.95.05"}}, "driver.verson", "did you mean 'version'?"),
        ({"driver": {"version": "580"}}, "driver.version", "exact upstream version"),
        ({"driver": {"version": "580"}}, "driver.version", "for the newest version of a branch, set driver.branch"),
        ({"driver": {"version": "-o580.95.05"}}, "driver.version", "begins with '-'"),
        ({"driver": {"version": "580.95.05\n"}}, "driver.version", "control character"),
        ({"driver": {"version": ""}}, "driver.version", "is empty"),
        ({"driver": {"version": "580.95.05", "branch": "570"}}, "driver.version", "is not in driver.branch '570'"),
        ({"driver": None}, "driver", "must be a mapping of settings, not NoneType"),
        ({"driver": {1: "x"}}, "driver.1", "the key must be a string"),
        ({"toolkit": {"version": "1.17.8; reboot"}}, "toolkit.version", "a version such as '1.17.8'"),
        ({"toolkit": {"version": "1.18.0-rc.1"}}, "toolkit.version", "release candidate"),
        ({"containerd": {"source": "present", "version": "1.7.24"}}, "containerd.version", "'present'"),
        ({"containerd": {"version": "$(id)"}}, "containerd.version", "must be an upstream version"),
        ({"disruption": {"max_parallel": 0}}, "disruption.max_parallel", "must be 1 or more"),
        ({"disruption": {"max_parallel": True}}, "disruption.max_parallel", "a whole number, not bool"),
        (
            {"repositories": {"cuda": {"url": "ftp://mirror/x"}}},
            "repositories.cuda.url",
            "http://, https:// or file://",
        ),
        ({"repositories": {"cuda": {"url": "http://m/$(id)"}}}, "repositories.cuda.url", "http://"),
        ({"repositories": {"cuda": {"url": "http://m/a b"}}}, "repositories.cuda.url", "http://"),
        ({"repositories": {"cuda": {"url": "http://m/{arch}"}}}, "repositories.cuda.url", "{architecture}"),
        ({"repositories": {"cuda": {"key_fingerprint": "3BF863CC"}}}, "repositories.cuda.key_fingerprint", "40 hex"),
        ({"proxy": {"no_proxy": "localhost"}}, "proxy.no_proxy", "a list, not str"),
        ({"proxy": {"no_proxy": ["a;b"]}}, "proxy.no_proxy.0", "a host name"),
        ({"proxy": {"http": "proxy:3128"}}, "proxy.http", "an address such as"),
    ],
)
def test_a_wrong_setting_is_named_and_explained(data: dict[str, Any], key: str, says: str) -> None:
    problem = _only(data)
    assert problem.key == key
    assert says in problem.message


def test_a_wrong_choice_lists_the_allowed_ones() -> None:
    assert str(_only({"driver": {"flavour": "opne"}})) == (
        "driver.flavour = 'opne': not allowed; allowed: auto, open, proprietary [settings.not-allowed]"
    )


def test_an_unknown_cuda_release_lists_the_known_ones() -> None:
    problem = _only({"cuda": {"version": "12.95"}})
    assert "12.9" in problem.allowed


def test_nvidia_as_default_runtime_needs_the_toolkit() -> None:
    assert _only({"toolkit": {"enabled": False}}).key == "containerd.default_runtime"
    settings_from({"toolkit": {"enabled": False}, "containerd": {"default_runtime": "runc"}})
    settings_from({"toolkit": {"enabled": False}, "containerd": {"enabled": False}})


def test_a_misspelt_component_is_refused_and_corrected() -> None:
    problem = _only({"drivr": {}})
    assert "did you mean 'driver'?" in problem.message
    assert "driver" in problem.allowed


def test_names_of_pyinfra_and_own_data_are_let_through() -> None:
    settings_from({"ssh_user": "root", "_sudo": True, "x_rack": 12.9}, {"ssh_user"})
    assert _only({"ssh_user": "root"}).key == "ssh_user"


def test_no_secret_shows_in_a_message() -> None:
    text = "\n".join(map(str, _problems({"ssh_pasword": "hunter2", "proxy": {"http": "http://me:hunter2@proxy:1/;x"}})))
    assert "hunter2" not in text


def test_every_mistake_of_every_host_stands_in_one_message() -> None:
    hosts: dict[str, dict[str, Any]] = {
        "gpu-1": {"driver": {"flavour": "opne", "branch": 580}},
        "gpu-2": {"cuda": {"versoin": "12.9"}, "toolkit": {"channel": "beta"}},
        "gpu-3": {"containerd": {"source": "present", "version": "1.7.24"}},
        "gpu-4": {},
    }
    with pytest.raises(SettingsError) as refused:
        check_hosts(hosts)
    lines = str(refused.value).splitlines()
    assert lines[0].startswith("5 mistakes")
    assert [line.split(" = ")[0].strip() for line in lines[1:]] == [
        "gpu-1: driver.flavour",
        "gpu-1: driver.branch",
        "gpu-2: cuda.versoin",
        "gpu-2: toolkit.channel",
        "gpu-3: containerd.version",
    ]


def test_a_mistake_of_a_group_is_told_once_with_all_hosts_that_have_it() -> None:
    group = {"driver": {"flavor": "open"}}
    own = {**group, "cuda": {"versoin": "12.9"}}
    with pytest.raises(SettingsError) as refused:
        check_hosts({"gpu-1": group, "gpu-2": own, "gpu-3": group, "gpu-4": {}, "gpu-9": group})
    head, *lines = str(refused.value).splitlines()
    assert head == "2 mistakes in the settings; nothing was done:"
    assert [line.partition(" = ")[0].strip() for line in lines] == [
        "gpu-1 to gpu-3, gpu-9: driver.flavor",
        "gpu-2: cuda.versoin",
    ]
    assert len(refused.value.problems) == 5, "programs get each host's own"


def test_a_mirror_overrides_the_address_and_keeps_the_pinned_key() -> None:
    url = "http://127.0.0.1:8900/cuda/{distribution}/{architecture}"
    repository = settings_from({"repositories": {"cuda": {"url": url}}}).repositories.cuda
    assert repository.key_fingerprint == "EB693B3035CD5710E231E123A4B469963BF863CC"
    resolved = repository.at(distribution="debian12", architecture="x86_64")
    assert resolved.url == "http://127.0.0.1:8900/cuda/debian12/x86_64"


def test_a_fingerprint_may_be_written_in_groups() -> None:
    spaced = "9DC8 5822 9FC7 DD38 854A  E2D8 8D81 803C 0EBF CD88"
    data = {"repositories": {"docker": {"key_fingerprint": spaced.lower()}}}
    assert settings_from(data).repositories.docker.key_fingerprint == "9DC858229FC7DD38854AE2D88D81803C0EBFCD88"


def test_settings_are_frozen() -> None:
    with pytest.raises(Exception, match="frozen"):
        settings_from({}).driver.branch = "570"


def test_the_digest_is_that_of_the_meaning() -> None:
    written = settings_from({"driver": {"hold": True}, "cuda": {"profile": True}})
    assert written.digest() == settings_from({}).digest()
    assert settings_from({"cuda": {"profile": False}}).digest() != written.digest()


plain_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=6,
)
component_names = st.sampled_from(sorted(component_models()))
field_names = st.sampled_from(sorted({name for model in component_models().values() for name in model.model_fields}))


@given(st.dictionaries(component_names, plain_values | st.dictionaries(field_names, plain_values, max_size=4)))
def test_whatever_is_written_is_taken_or_refused_in_words(data: dict[str, Any]) -> None:
    try:
        settings_from(data, ())
    except SettingsError as error:
        assert error.problems
        for problem in error.problems:
            assert problem.message
            assert "\n" not in str(problem)


def test_every_setting_is_described() -> None:
    for name, model in component_models().items():
        assert not set(model.model_fields) - set(reference.described(model)), name
        assert all(reference.described(model).values()), name


def test_the_document_names_every_setting_once() -> None:
    text = reference.document()
    assert text.count("| `kubernetes_sysctls` | true or false |") == 1
    assert "| `cuda.key_fingerprint` | string |" in text
    assert "?" not in {reference.kind(field.annotation) for field in component_models()["driver"].model_fields.values()}


def test_hosts_of_one_run_share_one_limit_on_parallel_disturbance() -> None:
    hosts = {"a": {"disruption": {"max_parallel": 2}}, "b": {}, "c": {"disruption": {"max_parallel": 2}}}
    with pytest.raises(SettingsError) as error:
        check_hosts(hosts)
    assert [(item.host, item.key) for item in error.value.problems] == [("b", "disruption.max_parallel")]


def _nested(levels: int, inside: str) -> Any:
    value: Any = inside
    for level in range(levels):
        value = {"a": value} if level % 2 else [value]
    return value


@pytest.mark.parametrize("levels", [49, 900, 5000])
@pytest.mark.parametrize(
    "path", [("driver", "version"), ("driver", "misspelt"), ("device_plugin", "values"), ("containerd",), ("drivr",)]
)
def test_a_value_nested_deeper_than_any_setting_is_refused_in_words(path: tuple[str, ...], levels: int) -> None:
    data = _nested(levels, "http://user:password@host")
    for name in reversed(path):
        data = {name: data}
    with pytest.raises(SettingsError) as refused:
        settings_from(data, ())
    assert path[0] in str(refused.value)
    assert "password" not in str(refused.value)
    assert len(str(refused.value)) < 1000


def test_a_value_that_holds_itself_is_refused_in_words() -> None:
    value: dict[str, Any] = {}
    value["one"] = value["two"] = value
    with pytest.raises(SettingsError, match="nested deeper than"):
        settings_from({"device_plugin": {"values": value}}, ())


def test_a_key_that_is_no_word_is_refused_in_words() -> None:
    with pytest.raises(SettingsError, match="must be a string"):
        settings_from({"driver": {"branch": {(1, 2): 3}}}, ())
