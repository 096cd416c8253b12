"""Bundles of an inventory: what each host's carries, and what none can; who is judged by the reports that come back."""

from __future__ import annotations

import io
import json
import subprocess
import tarfile
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gpunode.agent.bundle import BundleError, carried, signers
from gpunode.agent.files import Install, install_from, texts
from gpunode.agent.pull import BUNDLE, END, OWN, Places, verified
from gpunode.cli import agent
from gpunode.fleet import bundles
from gpunode.settings import settings_from
from tests.support import warm

pytestmark = pytest.mark.pure

NOW = datetime(2026, 11, 26, 12, 0, tzinfo=UTC)
INVENTORY = """
gpu_nodes = [
    ("gpu-1", {"ssh_hostname": "10.0.0.1", "x_rack": "7", "driver": {"branch": "580"}, "engine": {"site": "east"}}),
    ("gpu-2", {"driver": {"branch": "570"}}),
]
"""


HUGE = 9 * 10**18
DOMAIN = {"enabled": True, "domain": "a", "nodes": {"gpu-1": "10.0.0.1", "gpu-2": "10.0.0.2"}}


def test_data_that_json_has_not_are_refused_and_not_made_something_else() -> None:
    settings = settings_from({"driver": {"branch": "580"}})
    with pytest.raises(BundleError):
        carried("gpu-1", {"driver": {"branch": {1, 2}}}, settings)


@pytest.fixture
def site(tmp_path: Path) -> Path:
    (tmp_path / "fleet.py").write_text(INVENTORY)
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / "key")], check=True)
    return tmp_path


def words_for(site: Path, *words: str) -> list[str]:
    return [*map(str, ("--key", site / "key", "--out", site / "out", *words, site / "fleet.py"))]


Bundled = Callable[..., Result]


@pytest.fixture
def bundle(site: Path, monkeypatch: pytest.MonkeyPatch) -> Bundled:
    """Return what writes bundles; their program has one file, as all that it has takes seconds to pack."""
    monkeypatch.setattr(bundles, "_files", lambda: iter([("a", b"1", 0o644)]))
    return lambda *words: CliRunner().invoke(agent.bundle, words_for(site, *words))


def test_a_number_ahead_of_the_time_is_a_caution_and_can_be_withdrawn(site: Path, bundle: Bundled) -> None:
    done = bundle("--number", str(HUGE))
    assert done.exit_code == 0 and "[agent.number-ahead]" in done.stderr
    # A program that was cut off on its way is written anew.
    (program,) = (site / "out" / "programs").iterdir()
    whole = program.read_bytes()
    program.write_bytes(whole[:10])
    done = bundle("--withdraw", str(HUGE), "--withdraw", "9")
    assert done.exit_code == 0 and "[agent.number-ahead]" not in done.stderr and program.read_bytes() == whole
    text = (site / "out" / "gpu-1" / BUNDLE).read_bytes().partition(END)[2]
    assert json.loads(text)["withdrawn"] == [HUGE, 9]
    for words in (["--number", str(1 << 63)], ["--number", "9", "--withdraw", "9"]):
        assert bundle(*words).exit_code == 2


@pytest.mark.tier2
def test_each_host_has_one_bundle_with_its_own_settings_and_one_program(site: Path) -> None:
    words = words_for(site, "--output", "json", "--number", "7", "--valid", "2h")
    done = warm.run("gpunode", "agent", "bundle", *words)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["hosts"], told["number"], told["counts"]) == (["gpu-1", "gpu-2"], 7, {"hosts": 2})
    (site / "signers").write_text(signers((site / "key.pub").read_text()))
    bundles = [(site / "out" / host / BUNDLE).read_bytes() for host in told["hosts"]]
    found = [json.loads(verified(each, site / "signers")) for each in bundles]
    assert [each["settings"]["driver"]["branch"] for each in found] == ["580", "570"]
    assert {each["program"]["sha256"] for each in found} == {told["program"]}
    expires, issued = (datetime.fromisoformat(found[0][key]) for key in ("expires", "issued"))
    assert expires - issued == timedelta(hours=2)
    with tarfile.open(site / "out" / "programs" / f"{told['program']}.tar.gz") as archive:
        names = archive.getnames()
    ours = ("agent/pull.py", "deploys/gpu_node.py", "templates/scripts/driver.sh")
    others = {"bin/pyinfra", "site-packages/pyinfra/__init__.py"}
    assert {*(f"site-packages/gpunode/{path}" for path in ours), *others} <= set(names)
    assert not [name for name in names if "__pycache__" in name or name.startswith(("/", "site-packages/gpunode/lab"))]
    assert not [name for name in names if name.startswith("site-packages/pytest")]
    # Inventories tell of all hosts, and how they are reached; what a node carries out stands beside them.
    below = "site-packages/gpunode/repository/"
    assert {name.removeprefix(below) for name in names if name.startswith(below)} == set(OWN)


def test_where_one_host_has_none_or_the_key_does_not_sign_nothing_is_written(site: Path, bundle: Bundled) -> None:
    path = site / "fleet.py"
    path.write_text(f"{INVENTORY}gpu_nodes[1][1]['imex'] = {DOMAIN!r}\n")
    done = bundle()
    assert done.exit_code == 3 and "[agent.no-bundle]" in done.stderr, done.stderr
    assert bundle("--limit", "gpu-9").exit_code == 2
    (site / "key").write_text("no key")
    path.write_text(INVENTORY)
    done = bundle()
    assert done.exit_code == 1 and "[agent.not-signed]" in done.stderr and isinstance(done.exception, SystemExit)
    assert not (site / "out").exists()


def test_equal_environments_make_equal_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    files = [("b", b"2", 0o644), ("a", b"1", 0o755)]
    monkeypatch.setattr(bundles, "_files", lambda: iter(files))
    first = bundles.packed()
    files.reverse()
    assert bundles.packed() == first
    with tarfile.open(fileobj=io.BytesIO(first[0])) as archive:
        assert [(each.name, each.mode, each.mtime, each.uid) for each in archive] == [
            ("a", 0o755, 0, 0), ("b", 0o644, 0, 0),
        ]  # fmt: skip


def test_what_is_installed_is_what_the_node_s_program_reads() -> None:
    desired = Install("https://a", "gpunode ssh-ed25519 AAAA\n", 1800, 900, ca="PEM", textfile="/var/lib/ne")
    assert install_from(desired.to_text()) == desired
    files = texts(desired, "gpu-1")
    assert json.loads(files[str(Places().config)][0]) == {
        "source": "https://a", "host": "gpu-1", "ca": "/etc/gpunode/agent-ca.pem", "textfile": "/var/lib/ne",
    }  # fmt: skip
    timer = files["/etc/systemd/system/gpunode-agent.timer"][0]
    assert "OnUnitInactiveSec=1800\n" in timer and "RandomizedDelaySec=900\n" in timer
    assert files["/usr/local/lib/gpunode/pull.py"][0].startswith('"""What a node runs')
