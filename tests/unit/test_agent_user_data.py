"""User data for cloud-init: the agent's files, who begins, and nothing secret. That cloud-init takes it: first_boot."""

from __future__ import annotations

import gzip
import json
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import jinja2
import pytest
import yaml

from gpunode.agent.bundle import MOST, compressed, signers, user_data
from gpunode.agent.files import FIRST_PULL, Install, install_from, texts
from gpunode.agent.gate import Gate
from gpunode.agent.pull import Places
from tests.support import warm
from tests.support.messages import unnamed
from tests.support.programs import programs, sh

pytestmark = pytest.mark.pure

PUBLIC = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIB6zrtzd3NvadHuEnQuHqWpocdZDPLHc1SoDzPNUZExT"
GATE = Gate("https://10.0.0.1:6443", "/etc/kubernetes/pki/ca.crt", "/etc/gpunode/gate-token")
PLAIN = Install("https://bundles.example/gpunode", f"gpunode {PUBLIC}\n", 1800, 1800)
WHOLE = replace(
    PLAIN, spread=900, ca="-----BEGIN CERTIFICATE-----\nAA==\n", textfile="/var/lib/node-exporter",
    python="/usr/bin/python3.11", gate=GATE,
)  # fmt: skip


def written(text: str, name: str = "gpu-7") -> dict[str, tuple[str, str]]:
    """Return path -> (text, mode) as cloud-init writes them on a machine of that name."""
    if text.startswith("## template: jinja\n"):
        text = jinja2.Template(text.partition("\n")[2], keep_trailing_newline=True).render(v1={"local_hostname": name})
    assert text.startswith("#cloud-config\n")
    found: list[dict[str, Any]] = yaml.safe_load(text)["write_files"]
    return {each["path"]: (each["content"], each["permissions"].removeprefix("0")) for each in found}


@pytest.mark.parametrize("desired", [PLAIN, WHOLE], ids=["plain", "whole"])
@pytest.mark.parametrize(("host", "name"), [("gpu-group", "gpu-7"), (None, "gpu-7"), (None, "gpu-8")])
def test_a_machine_gets_just_the_files_that_install_puts_there_and_who_begins(
    desired: Install, host: str | None, name: str
) -> None:
    found = written(user_data(desired, host), name)
    begins, mode = found.pop(FIRST_PULL)
    assert begins.startswith("#!/bin/sh\n") and mode == "755"
    assert found == texts(desired, host or name)


def test_words_that_jinja_would_take_stay_what_they_are() -> None:
    desired = replace(PLAIN, source="https://bundles.example/{{ v1.region }}", ca="{% if x %}{# #}\n")
    found = written(user_data(desired, None))
    assert json.loads(found[str(Places().config)][0])["source"] == "https://bundles.example/{{ v1.region }}"
    assert "{% if x %}{# #}\n" in [text for text, _ in found.values()]


def test_it_fits_ec2_when_it_is_compressed_and_is_the_same_for_the_same() -> None:
    text = user_data(WHOLE, None)
    # The rest is for the site's certificates.
    assert len(compressed(text)) < MOST * 7 // 8
    assert compressed(text) == compressed(user_data(WHOLE, None))
    assert gzip.decompress(compressed(text)).decode() == text


def test_lists_of_another_part_are_kept_beside_ours() -> None:
    merged = yaml.safe_load(user_data(PLAIN, "gpu-1"))["merge_how"]
    assert {"name": "list", "settings": ["append"]} in merged


def test_without_a_gate_there_is_nothing_of_it_and_settings_come_back_the_same() -> None:
    assert "gate" not in yaml.safe_dump({path: text for path, (text, _) in texts(PLAIN, "gpu-1").items()})
    assert any("gpunode-gate" in text for text, _ in texts(WHOLE, "gpu-1").values())
    assert [install_from(each.to_text()) for each in (WHOLE, PLAIN)] == [WHOLE, PLAIN]


@pytest.fixture
def key(tmp_path: Path) -> Path:
    path = tmp_path / "key.pub"
    path.write_text(f"{PUBLIC} me\n")
    return path


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return warm.run("gpunode", "agent", "user-data", *words)


def test_the_command_prints_it_to_the_byte(key: Path) -> None:
    words = ("--from", "https://bundles.example/gpunode", "--public-key", str(key))
    done, desired = run(*words), user_data(replace(PLAIN, signers=signers(PUBLIC)), None)
    assert (done.returncode, done.stdout, done.stderr) == (0, desired, "")
    gated = run(*words, "--host", "group", "--gate", "https://10.0.0.1:6443")
    assert json.loads(written(gated.stdout)["/etc/gpunode/gate.json"][0])["server"] == "https://10.0.0.1:6443"


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("--gate", "http://a"), "agent.gate"),
        (("--from", "http://a"), "agent.source"),
        (("--every", "soon"), "--every"),
        (("--python", "python3"), "--python"),
        (("--textfile", "/a/../b"), "--textfile"),
        (("--gate-token", "/a b"), "--gate-token"),
        (("--public-key", "binary"), "--public-key"),
    ],
)
def test_what_is_no_way_to_install_is_refused(
    key: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], named: str
) -> None:
    monkeypatch.chdir(key.parent)
    Path("binary").write_bytes(b"\xff\xfe")
    done = run("--from", "https://a/b", "--public-key", str(key), *words)
    assert done.returncode != 0 and done.stdout == "" and "Traceback" not in done.stderr
    assert unnamed(done.stderr, named) == []


@pytest.mark.simulated
@pytest.mark.parametrize(
    ("started", "status", "system", "code", "slept"),
    [
        (0, "0", "running", 0, ""),
        (1, "7", "degraded", 7, ""),
        (1, "3", "running", 3, "5 10 20 40 0 "),
        # It was never started, and systemd knows no status of it or an old one.
        (1, "0", "running", 1, ""),
        (1, "", "running", 1, ""),
        # In a reboot cloud-init is not to go on before it is ended.
        (1, "15", "stopping", 15, "60 "),
    ],
)
def test_the_first_pull_ends_as_its_service_did(
    tmp_path: Path, started: int, status: str, system: str, code: int, slept: str
) -> None:
    systemctl = f"case $1 in start) exit {started};; show) echo {status};; is-system-running) echo {system};; esac"
    programs(tmp_path, {"systemctl": systemctl, "sleep": f'printf "%s " "$1" >> {tmp_path}/slept'})
    (tmp_path / "slept").touch()
    begins = written(user_data(PLAIN, None))[FIRST_PULL][0]
    assert (sh(tmp_path, begins).returncode, (tmp_path / "slept").read_text()) == (code, slept)
