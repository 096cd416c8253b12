"""CUDA's .run file as sh runs it: what comes, and what comes back. SIMULATED: the installer in the file."""

from __future__ import annotations

import hashlib
import json
import subprocess
from pathlib import Path

import pytest

from gpunode.base.probe_output import checked
from gpunode.components.cuda.state import CudaToolkits, parse_cuda
from gpunode.facts.toolkit import CudaToolkits as CudaFact
from gpunode.operations.cuda import _LINK, CUDA
from gpunode.operations.script import script
from gpunode.operations.transaction import transaction_text

pytestmark = pytest.mark.simulated

_INSTALLER = r"""#!/bin/sh
for word in "$@"; do case "$word" in --toolkitpath=*) toolkit=${word#*=};; esac; done
mkdir -p "$toolkit/bin"; [ ! -e "$ROOT/dies" ] || kill -9 "$PPID"; ln -sfn "$toolkit" "$ROOT/usr/local/cuda"
[ ! -e "$ROOT/fault" ] || eval "$(cat "$ROOT/fault")"
[ ! -e "$ROOT/full" ] || { echo '[ERROR]: No space left on device' > "$ROOT/cuda.log"; exit 1; }
printf '#!/bin/sh\necho "Cuda compilation tools, release %s, V1"\n' "$(cat "$ROOT/says")" > "$toolkit/bin/nvcc"
printf '{"cuda": {"name": "CUDA SDK", "version": "%s"}}\n' "$(cat "$ROOT/tells")" > "$toolkit/version.json"
: > "$toolkit/bin/cuda-uninstaller"; chmod 755 "$toolkit/bin/nvcc"; echo "$*" > "$toolkit/told"
"""


class Machine:
    """Hold a node's /usr/local in a folder, and run CUDA's transaction on it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "usr/local").mkdir(parents=True)
        (root / "state").mkdir()
        self.file = root / "cuda.run"
        self.script = ""
        self.says("12.9")
        self.tells("12.9.1")

    def says(self, version: str) -> None:
        (self.root / "says").write_text(version)

    def tells(self, release: str) -> None:
        """Have the installed version.json tell a release, or a date."""
        (self.root / "tells").write_text(release)

    def change(self, version: str = "12.9") -> subprocess.CompletedProcess[str]:
        self.file.write_text(_INSTALLER)
        digest = hashlib.sha256(self.file.read_bytes()).hexdigest()
        self.file.with_name("cuda.run.sha256").write_text(f"{digest}\n")
        variables = {
            "runfile": str(self.file), "sha256": digest, "runfiles": str(self.root / "runfiles"),
            "release": f"{version}.1",
            "installer_log": str(self.root / "cuda.log"), "version": version, "dashed": version.replace(".", "-"),
            "toolkit": f"/usr/local/cuda-{version}",
        }  # fmt: skip
        text = transaction_text(CUDA, "target", variables)
        text = text.replace("folder=/var/lib/gpunode/transactions", f"folder={self.root / 'state'}", 1)
        self.script = text.replace("/usr/local/cuda", f"{self.root}/usr/local/cuda")
        return self.run(self.script, "change")

    def undo(self) -> subprocess.CompletedProcess[str]:
        return self.run(self.script, "undo")

    def program(self, name: str, text: str) -> None:
        """Put a SIMULATED program before the node's own."""
        path = self.root / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)

    def reading(self) -> CudaToolkits:
        """Return the node's reading, by the fact's own probe."""
        (self.root / "state/cuda.sh").write_text(script(self.script))
        text = CudaFact().command().replace("/usr/local", f"{self.root}/usr/local")
        text = text.replace("/var/lib/gpunode/transactions", str(self.root / "state"))
        said = subprocess.run(["sh", "-c", text], capture_output=True, text=True, check=False).stdout
        return parse_cuda(checked(said.replace(str(self.root), "").splitlines()))

    def run(self, text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["sh", "-c", script(text), "gpunode", *arguments],
            env={"PATH": f"{self.root}/bin:/usr/bin:/bin", "ROOT": str(self.root)},
            capture_output=True, text=True, check=False,
        )  # fmt: skip

    def toolkit(self, version: str) -> Path:
        return self.root / f"usr/local/cuda-{version}"

    @property
    def link(self) -> str | None:
        path = self.root / "usr/local/cuda"
        return str(path.readlink()) if path.is_symlink() else None

    @property
    def journal(self) -> str:
        return str(json.loads((self.root / "state/cuda.json").read_text())["state"])


@pytest.fixture
def node(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_toolkits_come_side_by_side_and_their_files_go(node: Machine) -> None:
    assert node.change("12.9").returncode == 0
    node.says("12.8")
    done = node.change("12.8")
    assert (done.returncode, node.journal) == (0, "done"), done.stderr
    assert node.toolkit("12.9").exists() and node.toolkit("12.8").exists()
    assert "--silent --toolkit" in (node.toolkit("12.8") / "told").read_text()
    assert not node.file.exists() and not (node.root / "runfiles/tmp").exists()


@pytest.mark.parametrize(
    ("fault", "journal", "says"),
    [
        ("exit 1", "failed", "the installer of CUDA 12.9.1 exits"),
        ("exit 127", "failed", "the installer of CUDA 12.9.1 exits"),
        # A signal or a full disk is no proof against the installer.
        ("kill -9 $$", "restored", ""),
        ('touch "$ROOT/full"', "restored", "system is full"),
    ],
)
def test_an_installer_that_fails_leaves_no_toolkit_and_is_not_run_again_where_it_failed_by_itself(
    node: Machine, fault: str, journal: str, says: str
) -> None:
    (node.root / "fault").write_text(fault)
    done = node.change()
    assert (done.returncode, node.journal, node.toolkit("12.9").exists()) == (1, journal, False)
    assert says in done.stderr and ("the installer of CUDA" in done.stderr) == (journal == "failed")


@pytest.mark.parametrize("replaced", [True, False])
def test_a_toolkit_that_does_not_work_leaves_what_was_there_before(node: Machine, replaced: bool) -> None:
    if replaced:
        assert node.change().returncode == 0
        (node.toolkit("12.9") / "mine").touch()
    node.says("11.0")
    done = node.change()
    assert (done.returncode, node.journal) == (1, "failed") and "release 11.0" in done.stderr
    assert (node.toolkit("12.9") / "mine").exists() == replaced
    assert node.link == (str(node.toolkit("12.9")) if replaced else None)
    there = ["cuda", "cuda-12.9"] if replaced else []
    assert sorted(path.name for path in (node.root / "usr/local").iterdir()) == there


def test_the_link_is_moved_and_a_folder_in_its_place_is_left_alone(node: Machine) -> None:
    node.toolkit("12.9").mkdir()
    text = _LINK.replace("/usr/local/cuda", f"{node.root}/usr/local/cuda")
    text = f"toolkit={node.toolkit('12.9')}\n{text}"
    assert node.run(text).returncode == 0 and node.link == str(node.toolkit("12.9"))
    (node.root / "usr/local/cuda").unlink()
    (node.root / "usr/local/cuda").mkdir()
    done = node.run(text)
    assert done.returncode == 1 and "is left alone" in done.stderr


@pytest.mark.parametrize("packaged", [False, True])
def test_an_interrupted_first_installation_is_read_as_such_and_its_undoing_spares_packages(
    node: Machine, packaged: bool
) -> None:
    (node.root / "dies").touch()
    # Whether a package brought nvcc.
    node.program("dpkg-query", "exit 0" if packaged else "exit 1")
    node.change()
    assert node.journal == "began" and node.toolkit("12.9").exists()
    assert node.reading().interrupted == "12.9"
    assert node.undo().returncode == 0
    assert (node.journal, node.toolkit("12.9").exists()) == ("restored", packaged)
    assert node.reading().interrupted is None


@pytest.mark.parametrize("signal", ["TERM", "KILL"])
def test_a_stop_while_the_old_toolkit_is_deleted_leaves_the_new_one(node: Machine, signal: str) -> None:
    assert node.change().returncode == 0
    (node.toolkit("12.9") / "old").touch()
    old = node.toolkit("12.9.gpunode-before")
    node.program(
        "rm",
        f'case "$*" in *cuda.run.sha256) if mkdir "{node.root}/once" 2>/dev/null; then\n'
        f'/bin/rm -rf "{old}/bin"; kill -{signal} "$PPID"; exit 1; fi;; esac; exec /bin/rm "$@"',
    )
    assert node.change().returncode != 0
    assert (node.root / "once").exists()
    if signal == "KILL":
        assert node.journal == "began" and old.exists()
        assert node.undo().returncode == 0
    assert node.journal == "restored"
    assert (node.toolkit("12.9") / "bin/nvcc").exists() and not (node.toolkit("12.9") / "old").exists()
    assert not old.exists() and not node.file.exists()
    assert node.link == str(node.toolkit("12.9"))


def test_a_release_whose_version_json_tells_a_date_is_known_by_what_was_recorded(node: Machine) -> None:
    node.tells("12.9.20250531")
    assert node.change().returncode == 0
    found = node.reading()
    assert (found.by_runfile, found.releases) == (("12.9",), (("12.9", "12.9.1"),))
    # Another release by hand, into the same folder: the record is of what was there before.
    version = node.toolkit("12.9") / "version.json"
    version.write_text(version.read_text().replace("12.9.20250531", "12.9.20250415"))
    assert node.reading().releases == ()
    version.write_text(version.read_text().replace("12.9.20250415", "12.9.0"))
    assert node.reading().releases == (("12.9", "12.9.0"),)


def test_a_folder_in_which_an_uninstaller_left_the_record_alone_is_no_toolkit(node: Machine) -> None:
    assert node.change().returncode == 0
    for path in ("bin/nvcc", "bin/cuda-uninstaller", "told", "version.json"):
        (node.toolkit("12.9") / path).unlink()
    (node.toolkit("12.9") / "bin").rmdir()
    assert node.reading().versions == ()
