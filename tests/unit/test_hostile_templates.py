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
from gpunode.settings import SettingsError, settings_from

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


def _proxy(**values: Any) -> Any:
    try:
        return settings_from({"proxy": values}).proxy
    except SettingsError:
        return assume(False)


@pytest.mark.skipif(shutil.which("apt-config") is None, reason="apt's own reader is needed")
@settings(suppress_health_check=[HealthCheck.filter_too_much])
@given(_PROXY, _DIRECT)
def test_apt_reads_each_proxy_setting_as_one_value(url: str, direct: str) -> None:
    proxy = _proxy(http=url, no_proxy=[direct])
    text = rendered("apt-proxy.conf", proxies={"http": proxy.http}, direct=proxy.direct_hosts)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "apt.conf"
        path.write_text(text, encoding="utf-8")
        done = subprocess.run(
            ["apt-config", "dump"], capture_output=True, text=True, check=True,
            env={**os.environ, "APT_CONFIG": str(path), "LC_ALL": "C.UTF-8"},
        )  # fmt: skip
    found = [line for line in done.stdout.splitlines() if re.match(r"Acquire::https?::Proxy", line)]
    values = [line for line in found if not line.endswith('::Proxy "";')]
    # apt takes the first of its own files too; what matters is that ours add these and no more.
    assert f'Acquire::http::Proxy "{url}";' in values
    for host in proxy.direct_hosts:
        assert host == direct
        assert f'Acquire::http::Proxy::{host} "DIRECT";' in values
        assert f'Acquire::https::Proxy::{host} "DIRECT";' in values
    ours = [line for line in values if url in line or "DIRECT" in line]
    assert len(ours) == 1 + 2 * len(proxy.direct_hosts), done.stdout


@settings(suppress_health_check=[HealthCheck.filter_too_much])
@given(_PROXY, st.lists(_DIRECT, max_size=3))
def test_systemd_reads_each_variable_as_one_value(url: str, direct: list[str]) -> None:
    proxy = _proxy(http=url, no_proxy=direct)
    environment = {"HTTP_PROXY": proxy.http, "NO_PROXY": ",".join(proxy.no_proxy)}
    text = rendered("http-proxy.conf", environment=environment)
    lines = [line for line in text.split("\n") if line and not line.startswith("#")]
    # systemd.syntax(7): a line ends at \n, a backslash continues it, a quote ends the value, % is a specifier.
    found = [re.fullmatch(r'Environment="([A-Z_]+)=([^"\\%\n]*)"', line) for line in lines[1:]]
    assert lines[0] == "[Service]"
    assert [match.groups() for match in found if match] == list(environment.items())


@pytest.mark.skipif(shutil.which("apt-get") is None, reason="apt's own reader is needed")
@settings(suppress_health_check=[HealthCheck.filter_too_much])
@given(_PATH)
def test_apt_reads_each_source_as_one_repository(url: str) -> None:
    try:
        taken = settings_from({"repositories": {"cuda": {"url": url}}}).repositories.cuda.url
    except SettingsError:
        assume(False)
    assume("{" not in taken)
    text = source_text(taken, "/usr/share/keyrings/gpunode-cuda.gpg")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "gpunode-cuda.sources"
        path.write_text(text, encoding="utf-8")
        done = subprocess.run(
            ["apt-get", "update", "--print-uris",
             "-o", f"Dir::Etc::sourcelist={path}", "-o", "Dir::Etc::sourceparts=-"],
            capture_output=True, text=True, check=False, env={**os.environ, "LC_ALL": "C.UTF-8"},
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    fetched = [line.split("' ")[0] for line in done.stdout.splitlines()]
    assert f"'{taken.rstrip('/')}/InRelease" in fetched
    assert {line.rpartition("/")[0] for line in fetched} == {f"'{taken.rstrip('/')}"}


@pytest.mark.parametrize("direct", ["0[/8", "g::h::", "a b", 'a"', "//x", "a;b", "10.0.0.0/8/8", "-a", "..", "[::1"])
def test_an_exception_that_no_format_could_hold_is_refused(direct: str) -> None:
    # The first made apt.conf unreadable, and with it every apt command of the node.
    with pytest.raises(SettingsError, match=r"must be a host name|begins with"):
        settings_from({"proxy": {"no_proxy": [direct]}})


@pytest.mark.parametrize(
    "direct",
    ["*", ".example.org", "*.example.org", "node-1", "10.0.0.0/8", "10.1.2.3:80", "fe80::1", "[::1]:80", "fc00::/7"],
)
def test_what_people_write_as_an_exception_is_taken(direct: str) -> None:
    assert settings_from({"proxy": {"no_proxy": [direct]}}).proxy.no_proxy == (direct,)


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
    try:
        asked = settings_from(
            {"dcgm": {"enabled": True, "exporter": {"enabled": True, "address": address, "port": port}}}
        )
    except SettingsError:
        return
    _, _, service = exporter_text(asked.dcgm.exporter).partition("[Service]\n")
    lines = [line for line in service.splitlines() if not line.startswith(("#", "Restart"))]
    assert lines and all(re.fullmatch(r'Environment="[A-Z_]+=[A-Za-z0-9.:\[\]]*"', line, re.ASCII) for line in lines)


def test_every_template_that_takes_values_is_tested_here() -> None:
    with_values = {
        path.name for path in TEMPLATES.iterdir() if path.is_file() and "{{" in path.read_text(encoding="utf-8")
    }
    # modules-load.conf takes the constant MODULES of deploys/containerd.py, kubernetes-sysctl.conf that of
    # gpunode/system/sysctl.py, nvidia-uvm.conf what driver_packages.yaml calls the module, and the files that hold
    # packages what dpkg itself has for names and versions (gpunode/packages/driver_packages and
    # gpunode/components/toolkit read nothing else).
    of_packages = {"driver-preferences", "driver-unattended-upgrades.conf", "nvidia-uvm.conf", "toolkit-preferences"}
    of_settings = {"apt-proxy.conf", "http-proxy.conf", "nvidia-parameters.conf"}
    # Of MPS: constants, and the path of a program that gpunode/components/mps/state.py checks.
    of_packages |= {"nvidia-mps.service", "nvidia-mps-settings"}
    # Of MIG: constants alone; a node's layout is in a file of its own (gpunode/components/mig/record.py).
    of_packages |= {"gpunode-mig-layout.service", "gpunode-mig-layout"}
    # Of power limits: constants, functions, and rules whose every word a pattern bounds (gpunode/settings/power.py).
    of_settings |= {"gpunode-power", "gpunode-power.service"}
    # Of DCGM's exporter: an address, numbers, and an engine's name; the test above.
    of_settings |= {"dcgm-exporter.conf"}
    # Of an image: constants, and units of runtimes by their own names.
    of_packages |= {"gpunode-first-boot.service"}
    # Of podman: one of three words, and a constant.
    of_settings |= {"containers.conf"}
    assert with_values == {"modules-load.conf", "kubernetes-sysctl.conf"} | of_settings | of_packages


@settings(suppress_health_check=[HealthCheck.filter_too_much])
@given(_RIGHT | _RIGHT | _ODD, _NAME, _RIGHT | _ODD, _NAME)
def test_modprobe_reads_each_parameter_as_one_word(in_key: str, before: str, odd: str, after: str) -> None:
    try:
        asked = {"NVreg_A": f"{before}{odd}{after}", f"NVreg_B{in_key}": after}
        taken = settings_from({"driver": {"module_parameters": asked}}).driver.module_parameters
    except SettingsError:
        assume(False)
    text = rendered("nvidia-parameters.conf", parameters=taken, modules=["nvidia"])
    lines = [line for line in text.split("\n") if line and not line.startswith("#")]
    # modprobe.d(5): words by white space, a backslash continues a line, kmod takes quotes and # as they are.
    assert [line.split() for line in lines] == [["options", "nvidia", f"{key}={taken[key]}"] for key in taken]
    assert not any(set(line) & set("\\\"'#$`") for line in lines)
