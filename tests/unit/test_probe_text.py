"""Shell files of the probes: values that never become shell, and questions that several components ask once."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyinfra.connectors.util import CommandOutput

from gpunode.base import probe as probes
from gpunode.base import shell_file as loader
from gpunode.base.probe import Probe, Shared, Text, batch_answers, batch_command, shell_text
from gpunode.base.probe_output import checked, sections
from gpunode.base.shell_file import shell_file
from gpunode.components.driver.state import module_fields
from gpunode.facts.base import UNITS, probe_command
from gpunode.facts.driver import Driver
from gpunode.facts.node import PARTS, Machine, Node
from gpunode.facts.packages import AptSources, DebPackages
from gpunode.facts.runtimes import Docker
from gpunode.facts.system import Unit
from gpunode.facts.toolkit import ContainerToolkit
from gpunode.facts.transaction import TransactionJournal
from gpunode.fleet.shared_readings import Changes, Snapshot, as_output
from gpunode.lab.world.toolkit import cdi_refresh
from gpunode.operations.script import script_command
from gpunode.packages.deb import parse_apt_sources, parse_deb_packages
from gpunode.system.disk import parse_disk
from gpunode.system.service import parse_unit
from gpunode.system.transaction import parse_journal
from tests.shell_files import SHELLS, faults, files, shell_strings
from tests.support.shell import programs

pytestmark = pytest.mark.pure

# Python takes a carriage return for the end of a line.
SHELL_TEXT = st.text(st.characters(min_codepoint=1, max_codepoint=255, exclude_characters="\r"), max_size=40)


def sh(command: str, environment: dict[str, str] | None = None, shell: Sequence[str] = ("sh",)) -> str:
    line = [*shell, "-c", command]
    return subprocess.run(line, env=environment, capture_output=True, text=True, check=True).stdout


@pytest.fixture
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(loader, "PACKAGE", tmp_path)
    loader.shell_file.cache_clear()
    yield tmp_path
    loader.shell_file.cache_clear()


def test_a_file_is_read_once_and_sent_without_its_comments(room: Path) -> None:
    file = room / "x.sh"
    file.write_text("# Prints b.\n\necho a  # c\n  # Why.\ncase x in '#'*) ;; esac\n")
    assert shell_file("x") == "echo a  # c\ncase x in '#'*) ;; esac"
    file.write_text("echo other\n")
    assert "other" not in shell_file("x")


@given(value=SHELL_TEXT)
def test_a_value_is_a_variable_and_never_text_of_the_shell(value: str) -> None:
    assert sh(f"{shell_text('system/disk', VALUE=value, FOLDERS='')}\nprintf '%s.' \"$VALUE\"") == f"{value}."
    with pytest.raises(ValueError, match="folders"):
        shell_text("system/disk", folders=value)


@pytest.mark.parametrize("start", ['"""', 'f"""{1}'])
def test_shell_in_python_ends_after_five_lines_whether_or_not_values_stand_in_it(start: str, tmp_path: Path) -> None:
    file = tmp_path / "x.py"
    lines = ["for name; do", *['echo "$name"'] * 4, "done"]
    file.write_text(f"A = {start}\n" + "\n".join(lines) + '\n"""\n')
    (fault,) = shell_strings(file)
    assert fault.startswith(f"{file}:1: ")
    file.write_text('"""What\n' + "\n".join(lines) + '\ndoes."""\nA = """\n' + "\n".join(lines[2:]) + '\n"""\n')
    assert list(shell_strings(file)) == []


def test_a_module_s_parameter_with_a_backslash_is_told_as_it_stands(tmp_path: Path) -> None:
    parameters = tmp_path / "params"
    parameters.write_text('RegistryDwords: "a\\nb=c\\c"\nModifyDeviceFiles: 1\n')
    command = str(Driver().command()).replace("/proc/driver/nvidia/params", str(parameters))
    lines = [line for line in sh(command).splitlines() if line.startswith("parameter=")]
    assert lines == ['parameter=RegistryDwords "a\\nb=c\\c"', "parameter=ModifyDeviceFiles 1"]


def test_what_several_components_ask_is_asked_once_in_a_node_s_command() -> None:
    command = str(Node().command())
    for program in ("dpkg-query -W", "rpm -qa", "pacman -Q ", "--query-$1", "wait\n"):
        assert command.count(program) == (3 if program == "rpm -qa" else 1), program
    # Once with the option of newer systemd, and once without.
    assert command.count("systemctl show") == 2
    (units,) = [line for line in command.splitlines() if line.startswith("{ UNITS=")]
    names = units.partition("=")[2].strip("'").split()
    assert len(names) == len(set(names)) == 25 and {"containerd.service", "docker.service"} < set(names)


def test_a_component_alone_asks_for_its_own_share_only() -> None:
    command = str(Docker().command())
    assert "{ UNITS=docker.service\n" in command
    assert "dpkg-query" not in command and "nvidia-smi" not in command
    # Whether it is there below driver.root is looked at; it is not run.
    assert "--query-" not in str(Machine().command())
    assert "{ ALSO=''\n" in str(PARTS["gpus"]().command())


ONE = Shared('echo noise; TOLD="$WANTED"; echo x >> "$CALLS"', variable="WANTED")
PART_A, PART_B = Text('echo "a=$TOLD"; TOLD=spoilt', (ONE.of("1", "2"),)), Text('echo "b=$TOLD"', (ONE.of("2", "3"),))
PLAIN = Text('echo "plain=$TOLD"')


@pytest.mark.parametrize("batched", [False, True])
def test_parts_read_one_answer_to_all_that_they_want_and_spoil_none(tmp_path: Path, batched: bool) -> None:
    calls = tmp_path / "calls"
    texts = [PART_A, PART_B]
    command = batch_command(texts, "m") if batched else Probe([("a", PART_A), ("b", PART_B)])
    lines = sh(f"export CALLS={calls}\n{command}").splitlines()
    found = [line for line in lines if not line.startswith("gpunode:") and line]
    assert found == ["a=1 2 3", "b=1 2 3"]
    assert calls.read_text() == "x\n"
    if batched:
        assert batch_answers(texts, "m", lines) == {PART_A: ["a=1 2 3"], PART_B: ["b=1 2 3"]}


def test_a_part_that_leaves_early_leaves_the_others() -> None:
    assert "b=1" in sh(Probe([("a", "exit 3"), ("b", "echo b=1")])).splitlines()


def test_what_a_snapshot_fetches_brings_the_shared_questions_of_what_was_announced(tmp_path: Path) -> None:
    commands: list[str] = []

    def run(command: str) -> tuple[bool, CommandOutput]:
        commands.append(command)
        return True, as_output(sh(f"export CALLS={tmp_path}/calls\n{command}").splitlines())

    known = Snapshot(Changes())
    known.announce(Probe([(None, PART_B)]))
    known.announce(Probe([(None, PLAIN)]))
    for part, told in ((PART_A, "a=1 2 3"), (PART_B, "b=1 2 3"), (PLAIN, "plain=1 2 3")):
        succeeded, output = known.read(Probe([(None, part)]), "execute", "", False, run)
        assert succeeded and told in output.stdout_lines
    assert len(commands) == 1 and (tmp_path / "calls").read_text() == "x\n"


FOLDERS = st.lists(st.sampled_from(["/usr", "/usr/local", "/var", "/boot"]), unique=True)
NUMBERS = st.integers(0, 2**50)
WORDS = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=12)


@given(st.lists(st.tuples(WORDS, NUMBERS, NUMBERS, NUMBERS, st.integers(0, 100), WORDS), max_size=4), st.data())
def test_whatever_df_says_of_a_device_the_free_space_is_read_back(
    rows: list[tuple[str, int, int, int, int, str]], data: st.DataObject
) -> None:
    folders = data.draw(st.lists(WORDS, min_size=len(rows), max_size=len(rows)))
    lines = [f"folder={folder}" for folder in folders]
    lines += [
        f"df={device}   {size}  {used} {free}  {percent}% /{mount}" for device, size, used, free, percent, mount in rows
    ]
    wanted = tuple((folder, f"/{row[5]}", row[3] * 1024) for folder, row in zip(folders, rows, strict=True))
    assert parse_disk(lines).free == wanted


def test_one_file_system_that_does_not_answer_leaves_the_others(tmp_path: Path) -> None:
    df = (
        'echo Filesystem; status=0; shift; for folder in "$@"; do case "$folder" in /var) status=1;; '
        '*) echo "x 10 4 6 40% $folder";; esac; done; exit $status'
    )
    lines = sh(PARTS["disk"]().command(), {"PATH": programs(tmp_path, df=df)}).splitlines()[:-2]
    assert [folder for folder, _, _ in parse_disk(lines).free] == [
        folder for folder in ("/usr", "/usr/local", "/boot") if Path(folder).exists()
    ]


@given(st.dictionaries(st.from_regex(r"[a-z_]{1,12}", fullmatch=True), WORDS), st.integers(1, 9))
def test_modinfo_s_fields_are_read_however_they_are_lined_up(fields: dict[str, str], blanks: int) -> None:
    assert module_fields([f"{name}:{' ' * blanks}{text}" for name, text in fields.items()]) == fields


HERE_DOCUMENT = "# Prints.\ncat <<END\nx\nEND\necho $((1 << 2))\n"


# A change may use a here-document, for one without room is undone; a shift is none.
@pytest.mark.parametrize(
    ("name", "text", "at"),
    [
        ("x", "echo $1\n", None), ("x", "# Prints a.\n\necho $1\n", None), ("x", "# Prints a.\n\nif\n", None),
        ("x", f"# {'x' * 120}\n", ["1"]), ("x", "# Prints a.\n\nf=$(mktemp); trap 'rm \"$f\"' EXIT\n", [""]),
        ("x", '# Prints a.\n\necho "a=$VALUE"\n', []), ("x", HERE_DOCUMENT, ["2"]), ("runtime", HERE_DOCUMENT, []),
    ],
)  # fmt: skip
def test_a_fault_in_a_shell_file_is_found_and_a_good_one_has_none(
    tmp_path: Path, name: str, text: str, at: list[str] | None
) -> None:
    path = tmp_path / "gpunode" / f"{name}.sh"
    path.parent.mkdir()
    path.write_text(text)
    assert files(tmp_path) == [path]
    found = [fault.partition(": ")[0].removeprefix(str(path)).strip(":") for fault in faults(path, [SHELLS[0]])]
    assert found if at is None else found == at


def machine(folder: Path, **stubs: str) -> dict[str, str]:
    """Return the environment of a machine that has dpkg, and these SIMULATED programs before its own."""
    (folder / "state/dpkg").mkdir(parents=True)
    (folder / "state/dpkg/status").write_text("x\n")
    return {"PATH": programs(folder, **stubs)}


LIST = """echo >> "$0.calls"
cat <<END
installed install dpkg 1.21.22 amd64
installed hold nvidia-open 580.95.05-1 amd64
installed install libnvidia-container1 1.17.8-1 amd64
installed hold nvidia-container-toolkit 1.17.8-1 amd64
not-installed unknown nvidia-utils  all
config-files deinstall nvidia-smi 1 amd64
installed install linux-image-amd64 6.1-1 amd64
END
exit 1"""


def test_one_list_of_dpkg_s_serves_driver_toolkit_and_apt(tmp_path: Path) -> None:
    environment = machine(tmp_path, dpkg_query=LIST, dpkg="exit 1", apt_get="", modinfo="exit 1")
    names = ("driver", "toolkit", "apt_sources")
    command = Probe([(name, PARTS[name].probe) for name in names]).replace("/var/lib/dpkg", f"{tmp_path}/state/dpkg")
    told = sections(checked(sh(command, environment).splitlines()))
    driver, toolkit, apt = (PARTS[name].parse([line for line in told[name] if line]) for name in names)
    assert driver.packages == (("nvidia-open", "580.95.05-1"),)
    assert (driver.kernels, driver.held) == (("linux-image-amd64",), ("nvidia-container-toolkit", "nvidia-open"))
    assert toolkit.packages == (("libnvidia-container1", "1.17.8-1"), ("nvidia-container-toolkit", "1.17.8-1"))
    assert (toolkit.held, apt.architecture) == (("nvidia-container-toolkit",), "amd64")
    assert (tmp_path / "bin/dpkg-query.calls").read_text() == "\n"


@pytest.mark.parametrize(("license", "flavour"), [("NVIDIA", "proprietary"), ("", None)])
def test_modinfo_is_asked_once_and_the_first_module_that_is_there_counts(
    tmp_path: Path, license: str, flavour: str | None
) -> None:
    # With Debian's own beside it, and an error for the third.
    printed = "filename: /x.ko\\nversion:  %s\\nlicense:  %s\\n"
    told = f'printf "{printed}" 580.95.05 "{license}" 535.1 "Dual MIT/GPL"'
    environment = machine(tmp_path, modinfo=f'echo "$*" >> "$0.calls"; {told}; exit 1', dpkg_query="")
    driver = PARTS["driver"].parse(checked(sh(PARTS["driver"]().command(), environment).splitlines()))
    assert (driver.module_version, driver.module_flavour) == ("580.95.05", flavour)
    assert (tmp_path / "bin/modinfo.calls").read_text() == "nvidia nvidia-current nvidia-current-open\n"


def test_parameters_of_the_kernel_are_read_whole(run_shell: Callable[[str], tuple[int, list[str]]]) -> None:
    names = ["kernel.ostype", "kernel.pid_max", "net.none.such"]
    _, lines = run_shell(Probe([(None, shell_text("system/sysctl", NAMES=" ".join(names)))]))
    assert lines[:-2] == [
        f"sysctl={name} {Path('/proc/sys', *name.split('.')).read_text().strip()}" for name in names[:2]
    ]


def test_units_that_are_asked_for_later_are_told_from_those_before(tmp_path: Path) -> None:
    """systemctl is SIMULATED."""
    printed = "Names=%s other-%s\\nActiveState=%s\\nExecStart=one\\nExecStart=two\\n"
    systemctl = f"""while [ "$1" != -p ]; do shift; done; shift 2; first=yes
for name in "$@"; do
  case "$name" in --*) continue;; esac
  [ -n "$first" ] || echo; first=; printf '{printed}' "$name" "$name" "of-$name"
done"""
    told = 'says ActiveState; echo "$SAID"; says ExecStart; echo "$SAID"; says None; echo "$SAID"'
    part = Text(
        f"show_units c.service d.service; for n in a b other-c d; do unit $n.service; {told}; done\nunit e || echo no",
        (UNITS.of("a.service", "b.service"),),
    )
    lines = checked(sh(Probe([(None, part)]), machine(tmp_path, systemctl=systemctl)).splitlines())
    wanted = [line for name in "abcd" for line in (f"of-{name}.service", "two", "")]
    assert lines[:-1] == [*wanted, "no"]


@pytest.mark.real
@pytest.mark.parametrize(
    ("path", "text", "named"),
    [
        ("sources.list.d/x.list", "deb http://u:secret@a.org/x y z\n", None),
        ("sources.list.d/x.list", "nonsense\n", "x.list"),
        ("sources.list.d/x.sources", "Types: deb\nURIs: http://a.org/x\n", "x.sources"),
        ("sources.list.d/x.list", "deb [signed-by=/a] http://a.org/ /\ndeb [signed-by=/b] http://a.org/ /\n", "/b"),
        ("preferences.d/x", "Pin: release a=x\n", "preferences.d/x"),
        ("apt.conf.d/x", "Foo { bar\n", "apt.conf.d/x"),
    ],
)
def test_apt_says_why_it_cannot_read_its_sources(tmp_path: Path, path: str, text: str, named: str | None) -> None:
    """apt is real, and reads this folder in the place of /etc/apt."""
    for name in ("sources.list.d", "preferences.d", "apt.conf.d"):
        (tmp_path / "etc" / name).mkdir(parents=True)
    (tmp_path / "etc" / path).write_text(text)
    (tmp_path / "apt.conf").write_text(f'Dir::Etc "{tmp_path}/etc";\n')
    lines = checked(sh(AptSources().command(), {**os.environ, "APT_CONFIG": f"{tmp_path}/apt.conf"}).splitlines())
    errors = parse_apt_sources(lines).errors
    assert not errors if named is None else named in errors[0]
    assert not list(tmp_path.glob("**/*.bin"))


# What dnf 4.14, dnf 5 and zypper 1.14 did with such a file on lab nodes.
@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("; a\n# b\n[x]\nname=x\n\nenabled=0\nbaseurl=file:///x\n  file:///y\n", None),
        ("nonsense\n", 1),
        ("[x\nname=x\n", 1),
        ("[]\nname=x\n", 1),
        ("[x]\nname x\n", 2),
        ("[x]\nname=x\n\nbaseurl\n", 4),
        (" a=b\n[x]\n", 1),
        ("a=b\n[x]\n", 1),
    ],
)
@pytest.mark.parametrize("folder", ["/etc/yum.repos.d", "/etc/zypp/repos.d"])
def test_a_repository_file_that_cannot_be_read_is_named(
    tmp_path: Path, folder: str, text: str, line: int | None
) -> None:
    errors = _errors_of_a_repository_file(tmp_path, folder, text)
    assert len(errors) == (line is not None)
    assert line is None or f"{folder}/x.repo, line {line}:" in errors[0]


# What these programs did with such a file.
@pytest.mark.parametrize("text", ["[x]\r\nname=x\r\n\r\nenabled=0\r\n", "\ufeff[x]\nname=x\n"])
@pytest.mark.parametrize(("folder", "refused"), [("/etc/yum.repos.d", False), ("/etc/zypp/repos.d", True)])
def test_a_repository_file_of_a_windows_editor_is_refused_by_zypper_alone(
    tmp_path: Path, folder: str, text: str, refused: bool
) -> None:
    assert bool(_errors_of_a_repository_file(tmp_path, folder, text)) == refused


def _errors_of_a_repository_file(root: Path, folder: str, text: str) -> tuple[str, ...]:
    there = Path(f"{root}{folder}")
    there.mkdir(parents=True)
    (there / "good.repo").write_text("[a]\nname=a\n")
    (there / "x.repo").write_bytes(text.encode())
    command = AptSources().command().replace("command -v apt-get", "false").replace("/var/lib/pacman", str(root))
    return parse_apt_sources(checked(sh(command.replace(f"{folder}/", f"{there}/")).splitlines())).errors


def test_the_origins_are_those_of_the_fetched_lists_whose_source_is_there(tmp_path: Path) -> None:
    lists, sources = tmp_path / "lists", tmp_path / "sources.list.d"
    lists.mkdir()
    sources.mkdir()
    (sources / "a.sources").write_text(
        "Types: deb\nURIs: http://deb.debian.org/debian/ https://a:b@c.org/x\nSuites: y\n"
    )
    (sources / "b.list").write_text("# deb http://gone.org/x y z\ndeb [signed-by=/k] file:/srv/x86_64 ./\n")
    head = "-----BEGIN PGP SIGNED MESSAGE-----\nHash: SHA256\n\n"
    heads = {
        "deb.debian.org_debian_dists_bookworm_InRelease": f"{head}Origin: Debian\nLabel: x\n",
        "c.org_x_dists_y_Release": "Label: X\nOrigin:  NVIDIA  Corporation \n",
        "_srv_x86%5f64_._InRelease": "Origin: of a folder\n",
        # Its source is gone, and its lists stay until the next update.
        "gone.org_x_dists_y_InRelease": "Origin: gone\n",
        # What stands behind the digests is a digest's, whatever it looks like.
        "deb.debian.org_debian_dists_none_InRelease": "Date: today\nSHA256:\n a 1 Packages\nOrigin: late\n",
        "deb.debian.org_debian_dists_bookworm_main_binary-amd64_Packages": "Origin: of a package\n",
    }
    for name, text in heads.items():
        (lists / name).write_text(text)
    command: str = Probe([(None, AptSources.probe)])
    for path, there in (("/var/lib/apt/lists", lists), ("/etc/apt/sources.list.d", sources)):
        assert path in command
        command = command.replace(path, str(there))
    command = command.replace("/etc/apt/sources.list ", f"{tmp_path}/none ")
    lines = checked(sh(command, machine(tmp_path, apt_get=":")).splitlines())
    assert parse_apt_sources(lines).origins == ("Debian", "NVIDIA  Corporation", "of a folder")


@pytest.mark.parametrize(
    ("version", "module", "runs"),
    [
        ("1.18.0", "nvidia.ko", True),
        ("1.18.0", "nvidia-current.ko", False),
        ("1.18.1", "nvidia-current.ko", True),
        ("1.18.1", "nvidia.ko.zst", False),
        ("1.18.2", "nvidia.ko.zst", True),
        ("1.19.0", "nvidia-current.ko", True),
        ("1.19.1", "nvidia-current-open.ko", False),
        ("1.20.0", "nvidia.ko.xz", True),
        ("1.20.0", "nvidia-current-open.ko", False),
        ("1.18.0", None, True),
    ],
)
def test_a_unit_that_passes_over_the_driver_renews_no_specification(
    tmp_path: Path, version: str, module: str | None, runs: bool
) -> None:
    """systemctl is SIMULATED; the conditions are those of the toolkit's tags (lab/world/toolkit.yaml)."""
    (tmp_path / "systemd/system").mkdir(parents=True)
    unit = cdi_refresh(version)
    assert unit is not None
    text = f"[Service]\nType=oneshot\n{unit.condition}\nExecStart=x\n"
    (tmp_path / "systemd/system/nvidia-cdi-refresh.service").write_text(text)
    if module:
        (tmp_path / "modules.dep").write_text(f"extra/i2c.ko:\nupdates/dkms/{module}: kernel/x.ko\n")
    command: str = Probe([(None, ContainerToolkit.probe)])
    for path, there in (
        ("/lib/modules/$release/modules.dep", tmp_path / "modules.dep"),
        ("in /etc /run /usr/lib /lib;", f"in {tmp_path};"),
    ):
        assert path in command
        command = command.replace(path, str(there))
    environment = machine(tmp_path, systemctl="printf 'Names=nvidia-cdi-refresh.path\\nUnitFileState=enabled\\n'")
    for shell in SHELLS:
        assert ("refresh=enabled" in sh(command, environment, shell)) == runs


def test_packages_and_units_that_several_ask_for_are_asked_for_once(tmp_path: Path) -> None:
    """systemctl and dpkg-query are SIMULATED."""
    dpkg = """echo called >> "$0.calls"
for name in "$@"; do
  case "$name" in -*|*'$'*) ;; missing) ;; gone) echo "config-files gone 1";; *) echo "installed $name 1.0";; esac
done"""
    systemctl = """echo called >> "$0.calls"
printf 'Names=a.service\nLoadState=loaded\nActiveState=active\nSubState=running\nUnitFileState=enabled\n'
printf '\nNames=gpunode-driver.service\nLoadState=not-found\nActiveState=inactive\n'"""
    asked = [
        DebPackages().command(["curl", "missing"]), DebPackages().command(["gone", "gnupg"]),
        Unit().command("a.service"), TransactionJournal().command("driver"),
    ]  # fmt: skip
    environment = machine(tmp_path, systemctl=systemctl, dpkg_query=dpkg, dpkg="exit 0")
    texts = [text for probe in asked for text in probe.texts]
    answers = batch_answers(texts, "mark", sh(batch_command(texts, "mark"), environment).splitlines())
    assert answers is not None
    first, second, unit, journal = (answers[text] for text in texts)
    assert parse_deb_packages(first).installed == (("curl", "1.0"),)
    assert parse_deb_packages(second).installed == (("gnupg", "1.0"),)
    assert parse_unit(unit).running and parse_unit(unit).enabled
    assert parse_journal(journal).running is False
    for program in ("dpkg-query", "systemctl"):
        assert len((tmp_path / f"bin/{program}.calls").read_text().splitlines()) == 1


# A connection that was cut off leaves nobody who reads; a terminal's Ctrl-C reaches all of a local node's.
@pytest.mark.parametrize("number", [signal.SIGPIPE, signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_question_that_is_broken_off_leaves_no_file(tmp_path: Path, number: signal.Signals) -> None:
    environment = machine(tmp_path, apt_cache=f"echo > {tmp_path}/asked; read -r word < {tmp_path}/on")
    os.mkfifo(tmp_path / "on")
    question = shell_text("packages/families/candidates")
    # A signal that is ignored where sh begins, as below nohup, no trap of it hears.
    process = subprocess.Popen(
        ["env", "--default-signal=HUP,INT,TERM,PIPE", "sh", "-c", question],
        env={**environment, "TMPDIR": str(tmp_path)},
    )
    try:
        while not (tmp_path / "asked").exists():
            assert process.poll() is None
            time.sleep(0.01)
        assert len([*tmp_path.glob("tmp.*")]) == 1
        process.send_signal(number)
        (tmp_path / "on").write_text("on\n")
        assert process.wait(timeout=30) == 1
    finally:
        process.kill()
        process.wait()
    assert not [*tmp_path.glob("tmp.*")]


@pytest.mark.parametrize("command", [probe_command('echo "$PATH"'), script_command('echo "$PATH"').get_raw_value()])
def test_a_command_finds_the_programs_of_root_behind_those_of_the_user_s_path(command: str) -> None:
    done = subprocess.run(["/bin/sh", "-c", command], env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True)
    folders = done.stdout.splitlines()[0].split(":")
    assert folders[:2] == ["/usr/bin", "/bin"] and {"/usr/sbin", "/sbin", "/usr/local/sbin"} <= set(folders)


def test_what_hangs_in_a_probe_ends_on_the_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probes, "LONGEST", 0.3)
    pipe = tmp_path / "nouveau.conf"
    os.mkfifo(pipe)
    command = batch_command(["echo before=1", f"grep x {pipe}"], "mark")
    started = time.monotonic()
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=30, check=True)
    assert time.monotonic() - started < 10
    assert "before=1" in done.stdout and batch_answers(["a", "b"], "mark", done.stdout.splitlines()) is None
    # Nobody has the pipe open for reading any more.
    with pytest.raises(OSError, match="No such device"):
        os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
