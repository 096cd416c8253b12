"""Files that cannot quote: what the settings let through renders to exactly one value, by the formats' own readers."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from gpunode.base.template import rendered
from gpunode.components.dcgm.drop_ins import exporter_text
from gpunode.packages.families.apt import source_text
from gpunode.settings import Settings, SettingsError, settings_from

pytestmark = [pytest.mark.real, pytest.mark.tier2]
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
