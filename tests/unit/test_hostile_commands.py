"""Hostile values in the commands that operations send, and in files: they arrive to the letter, and nothing else.

The real sh, gpg, apt and coreutils of this machine run them, in a temporary folder, as pyinfra would over SSH.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from pyinfra.api import StringCommand
from pyinfra.connectors.util import make_unix_command

from gpunode.base.template import rendered
from gpunode.components.dcgm.state import exporter_text
from gpunode.facts.families.dnf import DnfOffers, DnfRepository, DnfSimulation
from gpunode.facts.families.dnf5 import Dnf5Offers, Dnf5Simulation
from gpunode.facts.families.pacman import PacmanOffers, PacmanPackages, PacmanSimulation
from gpunode.facts.families.rpm import RpmPackages
from gpunode.facts.families.zypper import ZypperOffers, ZypperRepository, ZypperSimulation
from gpunode.facts.file import File
from gpunode.facts.packages import AptRepository, DebPackages
from gpunode.facts.system import Unit
from gpunode.operations.files import write_command
from gpunode.operations.repositories import commands
from gpunode.operations.script import script_command
from gpunode.operations.transaction import transaction_text
from gpunode.packages.apt_trust import DISABLED, Disable, Rewrite
from gpunode.packages.repositories import source_text
from gpunode.settings import Settings, SettingsError, settings_from
from tests.support.hostile import CANARY, HOSTILE, hostile_text
from tests.support.transactions import of_bodies

pytestmark = [pytest.mark.real, pytest.mark.tier2]


def _can_travel(text: str) -> bool:
    """Say whether a text can be an argument of a program at all."""
    return "\0" not in text and text.encode("utf-8", "ignore").decode() == text


ARGUMENTS = tuple(filter(_can_travel, HOSTILE))


@contextmanager
def _folder() -> Iterator[Path]:
    """Yield an empty folder; a canary in it at the end is a failure. A fixture would be one for all of hypothesis."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        yield folder
        assert not list(folder.rglob(CANARY)), "a value was run"


# Each in a shell and a folder of its own, by one program: to start some hundred from here takes several times as long.
_EACH = 'n=0; for line; do n=$((n + 1)); mkdir "$n"; (cd "$n"; eval "$line") || { echo "$n: $?" >&2; exit 1; }; done'


def _line(command: StringCommand | str) -> str:
    """Return a command as pyinfra's SSH connector hands it to the node's login shell."""
    asked = command if isinstance(command, StringCommand) else StringCommand(command)
    found: str = make_unix_command(asked).get_raw_value()
    return found


def _run(command: StringCommand | str, folder: Path) -> None:
    given = getattr(command, "connector_arguments", {}).get("_stdin", [])
    _sh(folder, _line(command), given="".join(f"{line}\n" for line in given))


def _sh(folder: Path, *words: str, given: str = "") -> None:
    if os.geteuid():
        # Only root may give a file to root; that is not what is shown here.
        (folder / "bin").mkdir(exist_ok=True)
        (folder / "bin" / "chown").symlink_to("/bin/true")
    done = subprocess.run(
        ["sh", "-c", *words], cwd=folder, input=given, capture_output=True, text=True, errors="replace", timeout=60,
        check=False,
        env={**os.environ, "PATH": f"{folder / 'bin'}:{os.environ['PATH']}"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def _arrives_in_a_script(value: str) -> None:
    with _folder() as folder:
        _run(script_command('printf %s "$value" > variable; printf %s "$1" > argument', value, value=value), folder)
        assert (folder / "variable").read_bytes() == value.encode()
        assert (folder / "argument").read_bytes() == value.encode()


# Longer than any setting may be; one argument of a program ends at 128 KiB, and here are two.
@pytest.mark.parametrize("value", [*ARGUMENTS, pytest.param("; $(x) " * 4_300, id="60 KB")])
def test_a_value_arrives_in_a_script_to_the_letter(value: str) -> None:
    _arrives_in_a_script(value)


@given(hostile_text.filter(_can_travel))
def test_any_value_arrives_in_a_script_to_the_letter(value: str) -> None:
    _arrives_in_a_script(value)


@pytest.mark.parametrize("value", ARGUMENTS)
def test_a_value_arrives_in_a_transaction_to_the_letter(value: str) -> None:
    transaction = of_bodies(":", 'printf %s "$value" > "$folder/arrived"', ":")
    with _folder() as folder:
        text = transaction_text(transaction, "target", {"folder": str(folder), "value": value})
        done = subprocess.run(["sh", "-c", text, "sh", "change"], cwd=folder, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr
        assert (folder / "arrived").read_bytes() == value.encode()


@pytest.mark.parametrize("value", ARGUMENTS)
def test_a_file_is_written_and_read_to_the_letter_whatever_its_name_and_text(
    value: str, run_shell: Callable[[str], tuple[int, list[str]]]
) -> None:
    with _folder() as folder:
        path = folder / f"a{value.replace('/', '_')}" / value.replace("/", "_")
        _run(write_command(str(path), value), folder)
        assert path.read_bytes() == value.encode() and list(path.parent.iterdir()) == [path]
        _, lines = run_shell(File().command(path=str(path)))
        assert f"sha256={hashlib.sha256(value.encode()).hexdigest()}" in lines


@pytest.mark.parametrize("mode", [(), ("644",), ("600",), ("755",)])
def test_a_file_of_90_kilobytes_is_written_with_the_mode_that_is_asked(mode: tuple[str, ...]) -> None:
    text = f"$(touch {CANARY})'\n" * 5_600
    with _folder() as folder:
        _run(write_command(str(folder / "file"), text, *mode), folder)
        assert (folder / "file").read_text() == text
        assert (folder / "file").stat().st_mode & 0o777 == int((*mode, "644")[0], 8)


@pytest.mark.parametrize("value", ARGUMENTS)
def test_disabling_a_file_takes_its_name_and_text_to_the_letter(value: str) -> None:
    with _folder() as folder:
        for number, name in enumerate(("renamed", "rewritten")):
            path = folder / f"{name}{value.replace('/', '_')}"
            path.write_text("old", encoding="utf-8")
            step = Rewrite(str(path), value, value) if number else Disable(str(path), value)
            for command in commands([step]):
                _run(command, folder)
            assert path.with_name(path.name + DISABLED).read_text(encoding="utf-8") == "old"
            assert path.exists() == bool(number)
        assert path.read_bytes() == value.encode()


def _of_one(value: str) -> dict[str, str]:
    """Return fact -> what it asks about a value."""
    repository = {"keyring": value, "source": value, "stamp": value, "uri": f"http://{value}"}
    of_dnf: tuple[Any, ...] = (DnfRepository, ZypperRepository)
    return {
        "File": File().command(path=value),
        "Unit": Unit().command(unit=value),
        "AptRepository": AptRepository().command(**repository, distrusted=[value]),
        "DnfOffers": DnfOffers().command(names=[value], stream=value),
        "DnfSimulation": DnfSimulation().command(coming={value: value}, going=[value], stream=value),
        **{fact.__name__: fact().command(**repository) for fact in of_dnf},
    }


def _of_many(values: Sequence[str]) -> dict[str, str]:
    """Return fact -> what it asks about all values at once, of those that take any number of names."""
    asked: tuple[tuple[dict[str, Any], tuple[Any, ...]], ...] = (
        ({"names": [*values, *values]}, (DebPackages, RpmPackages, PacmanPackages)),
        ({"names": [*values]}, (Dnf5Offers, PacmanOffers, ZypperOffers)),
        (
            {"coming": {each: each for each in values}, "going": [*values]},
            (Dnf5Simulation, PacmanSimulation, ZypperSimulation),
        ),
    )
    return {fact.__name__: fact().command(**arguments) for arguments, facts in asked for fact in facts}


@pytest.mark.parametrize("fact", [*_of_one(""), *_of_many(["x"])])
def test_a_probe_reads_and_runs_nothing_whatever_it_is_asked_about(fact: str) -> None:
    of_many = _of_many(ARGUMENTS)
    asked = [of_many[fact]] if fact in of_many else [_of_one(value)[fact] for value in ARGUMENTS]
    with _folder() as folder:
        _sh(folder, _EACH, "sh", *map(_line, asked))
        left = {number: list((folder / str(number)).iterdir()) for number in range(1, len(asked) + 1)}
        assert {number: names for number, names in left.items() if names} == {}


def test_the_canary_dies_where_a_value_is_not_quoted_also_in_the_folder_of_one_command_of_many() -> None:
    with pytest.raises(AssertionError, match="a value was run"), _folder() as folder:
        _run(StringCommand("echo", f"; touch {CANARY}"), folder)
    with pytest.raises(AssertionError, match="a value was run"), _folder() as folder:
        _sh(folder, _EACH, "sh", _line("true"), _line(StringCommand("echo", f"; touch {CANARY}")))
    with pytest.raises(AssertionError, match="2: 3"), _folder() as folder:
        _sh(folder, _EACH, "sh", _line("true"), _line("exit 3"), _line("true"))


# Files that cannot quote: what the settings let through is exactly one value to the formats' own readers.

TEMPLATES = Path(__file__).resolve().parents[2] / "templates"
_NAME = st.from_regex(r"[ab0][ab0._-]{0,8}", fullmatch=True)
_RIGHT = st.just("")
_ODD = st.sampled_from([*" \"';\\$`%#{}()[]*@,=~&|<>\n\t", "//", "/*", "::", "\u2028", "é"])
# Mostly right with something odd in it: pure noise would all be refused and show nothing.
_PROXY = st.builds(lambda host, odd, port: f"http://{host}{odd}{port}", _NAME, _RIGHT | _RIGHT | _ODD, st.just(":3128"))
_DIRECT = st.builds(
    lambda before, odd, after: f"{before}{odd}{after}", _NAME, _RIGHT | _RIGHT | _ODD, _NAME | st.just("/8")
)
_PATH = st.builds(lambda a, odd, b: f"http://mirror/{a}{odd}{b}", _NAME, _ODD | st.sampled_from("~%+:=,"), _NAME)


def _taken(data: dict[str, Any]) -> Settings:
    """Return the settings, where they are not refused."""
    try:
        return settings_from(data)
    except SettingsError:
        assume(False)
        raise


def _lines(text: str) -> list[str]:
    return [line for line in text.split("\n") if line and not line.startswith("#")]


def _read(text: str, name: str, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a program on a file of this text, named FILE in its words and environment."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_text(text, encoding="utf-8")
        named = {key: value.replace("FILE", str(path)) for key, value in environment.items()}
        return subprocess.run(
            [word.replace("FILE", str(path)) for word in words], capture_output=True, text=True, check=True,
            env={**os.environ, "LC_ALL": "C.UTF-8", **named},
        )  # fmt: skip


@pytest.mark.skipif(shutil.which("apt-config") is None, reason="apt's own reader is needed")
@settings(suppress_health_check=[HealthCheck.filter_too_much])
@given(_PROXY, _DIRECT)
def test_apt_reads_each_proxy_setting_as_one_value(url: str, direct: str) -> None:
    proxy = _taken({"proxy": {"http": url, "no_proxy": [direct]}}).proxy
    text = rendered("apt-proxy.conf", proxies={"http": proxy.http}, direct=proxy.direct_hosts)
    done = _read(text, "apt.conf", "apt-config", "dump", APT_CONFIG="FILE")
    found = [line for line in done.stdout.splitlines() if re.match(r"Acquire::https?::Proxy", line)]
    values = [line for line in found if not line.endswith('::Proxy "";')]
    # apt takes the first of its own files too; what matters is that ours add these and no more.
    assert f'Acquire::http::Proxy "{url}";' in values
    for host in proxy.direct_hosts:
        assert host == direct
        for scheme in ("http", "https"):
            assert f'Acquire::{scheme}::Proxy::{host} "DIRECT";' in values
    ours = [line for line in values if url in line or "DIRECT" in line]
    assert len(ours) == 1 + 2 * len(proxy.direct_hosts), done.stdout


@settings(suppress_health_check=[HealthCheck.filter_too_much])
@given(_PROXY, st.lists(_DIRECT, max_size=3))
def test_systemd_reads_each_variable_as_one_value(url: str, direct: list[str]) -> None:
    proxy = _taken({"proxy": {"http": url, "no_proxy": direct}}).proxy
    environment = {"HTTP_PROXY": proxy.http, "NO_PROXY": ",".join(proxy.no_proxy)}
    text = rendered("http-proxy.conf", environment=environment)
    lines = _lines(text)
    # systemd.syntax(7): a line ends at \n, a backslash continues it, a quote ends the value, % is a specifier.
    found = [re.fullmatch(r'Environment="([A-Z_]+)=([^"\\%\n]*)"', line) for line in lines[1:]]
    assert lines[0] == "[Service]"
    assert [match.groups() for match in found if match] == list(environment.items())


@pytest.mark.skipif(shutil.which("apt-get") is None, reason="apt's own reader is needed")
@settings(suppress_health_check=[HealthCheck.filter_too_much])
@given(_PATH)
def test_apt_reads_each_source_as_one_repository(url: str) -> None:
    taken = _taken({"repositories": {"cuda": {"url": url}}}).repositories.cuda.url or ""
    assume("{" not in taken)
    text = source_text(taken, "/usr/share/keyrings/gpunode-cuda.gpg")
    words = ("apt-get", "update", "--print-uris", "-o", "Dir::Etc::sourcelist=FILE", "-o", "Dir::Etc::sourceparts=-")
    done = _read(text, "gpunode-cuda.sources", *words)
    fetched = [line.split("' ")[0] for line in done.stdout.splitlines()]
    assert f"'{taken.rstrip('/')}/InRelease" in fetched
    assert {line.rpartition("/")[0] for line in fetched} == {f"'{taken.rstrip('/')}"}


@settings(suppress_health_check=[HealthCheck.filter_too_much])
@given(
    address=st.builds(
        lambda start, odd, end: f"{start}{odd}{end}",
        st.sampled_from(["10.0.0.7", "::1", "fe80::1%", ""]),
        _ODD | _RIGHT,
        _NAME | _RIGHT,
    ),
    port=st.integers(0, 70000),
)
def test_the_exporter_s_drop_in_holds_one_address_and_port_or_they_are_refused(address: str, port: int) -> None:
    exporter = {"enabled": True, "address": address, "port": port}
    asked = _taken({"dcgm": {"enabled": True, "exporter": exporter}})
    _, _, service = exporter_text(asked.dcgm.exporter).partition("[Service]\n")
    lines = [line for line in service.splitlines() if not line.startswith(("#", "Restart"))]
    assert lines and all(re.fullmatch(r'Environment="[A-Z_]+=[A-Za-z0-9.:\[\]]*"', line, re.ASCII) for line in lines)


def test_every_template_that_takes_values_is_known() -> None:
    with_values = {
        path.name for path in TEMPLATES.iterdir() if path.is_file() and "{{" in path.read_text(encoding="utf-8")
    }
    # What is no setting of a person's: constants of gpunode's own, and what dpkg and systemd call packages and units.
    constant = {
        "modules-load.conf", "kubernetes-sysctl.conf", "driver-preferences", "driver-unattended-upgrades.conf",
        "nvidia-uvm.conf", "toolkit-preferences", "nvidia-mps.service", "nvidia-mps-settings",
        "gpunode-mig-layout.service", "gpunode-mig-layout", "gpunode-first-boot.service",
    }  # fmt: skip
    tested = {"apt-proxy.conf", "http-proxy.conf", "nvidia-parameters.conf", "dcgm-exporter.conf"}
    # Of podman one of three words; of power limits what patterns bound (gpunode/settings/power.py).
    bounded = {"containers.conf", "gpunode-power", "gpunode-power.service"}
    assert with_values == constant | tested | bounded


@settings(suppress_health_check=[HealthCheck.filter_too_much])
@given(_RIGHT | _RIGHT | _ODD, _NAME, _RIGHT | _ODD, _NAME)
def test_modprobe_reads_each_parameter_as_one_word(in_key: str, before: str, odd: str, after: str) -> None:
    asked = {"NVreg_A": f"{before}{odd}{after}", f"NVreg_B{in_key}": after}
    taken = _taken({"driver": {"module_parameters": asked}}).driver.module_parameters
    lines = _lines(rendered("nvidia-parameters.conf", parameters=taken, modules=["nvidia"]))
    # modprobe.d(5): words by white space, a backslash continues a line, kmod takes quotes and # as they are.
    assert [line.split() for line in lines] == [["options", "nvidia", f"{key}={taken[key]}"] for key in taken]
    assert not any(set(line) & set("\\\"'#$`") for line in lines)
