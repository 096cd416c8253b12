"""The how-to pages that need no node do what they say: every command is run, what it prints compared.

Those that need nodes are run by the scenario `pages`. Real: gpunode, pyinfra, ansible-inventory, and sops
with age where they are installed. SIMULATED: else sops, and vault, by programs that answer as they do.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.molecule.checkout import copied
from tests.molecule.pages.page import Command, Entry, followed, steps
from tests.support import warm

pytestmark = [pytest.mark.real, pytest.mark.tier2]

SECRET = "s3cret-of-the-fleet"
INVENTORY = "inventories/prod.py"
PROGRAMS = Path(__file__).parent / "data" / "pages"


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """Return a copy of the checkout, as a reader has it."""
    return copied(tmp_path / "gpunode", ".venv")


@pytest.fixture
def environment(copy: Path) -> dict[str, str]:
    """Return the reader's environment, with programs of the test's own first."""
    programs = copy.parent / "programs"
    programs.mkdir()
    return {**os.environ, "NO_COLOR": "1", "PATH": f"{programs}:{os.environ['PATH']}", "HOME": str(copy.parent)}


def follow(page: str, copy: Path, environment: dict[str, str]) -> None:
    found = steps(page)
    assert any(isinstance(step, Command) for step in found)
    for step in found:
        wrong = followed(step, copy, environment)
        assert wrong is None, wrong


@pytest.mark.parametrize("page", ["from-ansible", "behind-a-proxy", "beside-the-gpu-operator", "command-line"])
def test_every_command_of_the_page_ends_and_prints_as_it_says(
    page: str, copy: Path, environment: dict[str, str]
) -> None:
    follow(f"how-to/{page}.md", copy, environment)
    completion = copy.parent / ".local/share/bash-completion/completions/gpunode"
    assert page != "command-line" or "_gpunode_completion" in completion.read_text()


def simulated(environment: dict[str, str], name: str) -> None:
    shutil.copy(PROGRAMS / name, environment["PATH"].split(":")[0])
    Path(environment["PATH"].split(":")[0], name).chmod(0o755)


def encrypted(copy: Path, environment: dict[str, str]) -> None:
    """Encrypt the fleet's file by the real sops, with a new key of age's."""
    key = copy.parent / "age.txt"
    subprocess.run(["age-keygen", "-o", key], check=True, capture_output=True)
    environment["SOPS_AGE_KEY_FILE"] = str(key)
    public = key.read_text().partition("public key: ")[2].split()[0]
    (copy.parent / "plain.yaml").write_text(f"ssh_key_password: {SECRET}\n")
    words = ["sops", "encrypt", "--age", public, "--output", "inventories/fleet.sops.yaml", "../plain.yaml"]
    subprocess.run(words, cwd=copy, env=environment, check=True, capture_output=True)
    assert SECRET not in (copy / "inventories/fleet.sops.yaml").read_text()


@pytest.mark.parametrize("how", ["simulated", "real"])
def test_secrets_come_from_sops_and_vault_as_the_page_says_and_gpunode_shows_none(
    how: str, copy: Path, environment: dict[str, str]
) -> None:
    simulated(environment, "vault")
    (copy / "token").touch()
    if how == "simulated":
        simulated(environment, "sops")
        (copy / "inventories/fleet.sops.yaml").touch()
    elif shutil.which("sops") and shutil.which("age-keygen"):
        encrypted(copy, environment)
    else:
        pytest.skip("needs sops and age")
    follow("how-to/secrets.md", copy, environment)
    # pyinfra has it, which is what it is for, and shows it.
    told = warm.run("pyinfra", INVENTORY, "debug-inventory", cwd=copy, env=environment)
    assert SECRET in told.stdout + told.stderr
    nowhere = '\ngpu_nodes = [("127.0.0.1", {"ssh_port": 1, "ssh_connect_retries": 0})]\n'
    (copy / INVENTORY).write_text((copy / INVENTORY).read_text() + nowhere)
    page = copy / "drift.html"
    for words, status in (
        (("check", "--json"), 0), (("cluster",), 2), (("drift", "--json", "--html", str(page)), 1),
        (("plan", "--json"), 1), (("facts",), 1), (("apply", "--yes"), 1),
    ):  # fmt: skip
        done = warm.run("gpunode", *words, INVENTORY, cwd=copy, env=environment)
        assert done.returncode == status, done.stdout + done.stderr
        assert SECRET not in done.stdout + done.stderr
    logs = [path for path in (copy / ".apply").rglob("*") if path.is_file()]
    assert page.is_file() and not [path for path in (page, *logs) if SECRET in path.read_text(errors="replace")]


@pytest.mark.parametrize(("name", "says"), [("sops", "cannot read file"), ("vault", "permission denied")])
def test_what_cannot_be_decrypted_ends_the_command_with_the_program_s_words(
    name: str, says: str, copy: Path, environment: dict[str, str]
) -> None:
    simulated(environment, name)
    for step in steps("how-to/secrets.md"):
        if isinstance(step, Entry) and (step.file.endswith("decrypted.py") or f"of_{name}" in step.text):
            followed(step, copy, environment)
    done = warm.run("gpunode", "check", INVENTORY, cwd=copy, env=environment)
    assert done.returncode == 3 and says in done.stderr and "Traceback" not in done.stderr, done.stderr
