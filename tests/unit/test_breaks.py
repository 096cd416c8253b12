"""Breaks of the source that are planted by hand, each of which a named test must catch: the tests' own test.

Here stands what no operator of tests/mutation makes: another condition, a word of a pattern, a part of an expression,
a break over several lines; and one break for each promise of files that are in none of its groups.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.pure

CHECKOUT = Path(__file__).parent.parent.parent
PARTS = (
    "gpunode",
    "facts",
    "operations",
    "deploys",
    "templates",
    "lab",
    "inventories",
    "docs",
    "tests",
    "pyproject.toml",
)

# (file, what stands there, what breaks it, the test that must fail)
BREAKS = [
    (
        "gpunode/system/transaction.py",
        'self.state == "failed" and self.target == target',
        'self.state == "failed"',
        "test_transaction.py::test_a_journal_counts_for_its_own_target_and_while_nobody_is_at_work_on_it",
    ),
    (
        "gpunode/system/transaction.py",
        'self.state == "began" and not self.running',
        'self.state == "began"',
        "test_transaction.py::test_a_journal_counts_for_its_own_target_and_while_nobody_is_at_work_on_it",
    ),
    (
        "templates/scripts/pinned_key.sh",
        'if [ "$(keys_of "$fetched")" != "$4" ]; then',
        'if [ ! -f "$fetched" ]; then',
        "test_pinned_key.py::test_a_keyring_of_another_key_is_replaced_by_what_the_publisher_has",
    ),
    (
        "templates/scripts/zypper_read.sh",
        '[ "$verified" -eq 0 ] ||',
        "true ||",
        "test_zypper_signature.py",
    ),
    (
        "templates/scripts/runfile_installer.sh",
        """genuine "$runfile" && [ "$(head -n 1 "$runfile.sha256")" = "$sha256" ] ||""",
        'genuine "$runfile" ||',
        "test_runfile_transaction.py::test_a_file_that_is_whole_and_not_the_one_of_the_settings_is_removed_and_not_run",
    ),
    (
        "operations/files.py",
        "QuoteString(mode)",
        '"666"',
        "test_hostile_commands.py::test_a_file_is_written_with_the_mode_that_is_asked",
    ),
    (
        "gpunode/components/containerd/editor.py",
        '_runtime(runtimes, "runc", {"SystemdCgroup": desired.systemd_cgroup})',
        "pass",
        "test_containerd_editor.py::test_a_file_becomes_one_with_nvidia_as_default_and_systemd_cgroups",
    ),
    (
        "gpunode/base/toml_edit.py",
        "if key in table and same(_unwrapped(table[key]), value):",
        "if False:",
        "test_toml_edit.py::test_a_value_that_is_right_keeps_its_spelling_where_another_changes",
    ),
    (
        "gpunode/components/containerd/editor.py",
        "not in schema.accepts",
        "is None",
        "test_containerd_editor.py::test_what_cannot_be_edited_is_refused_with_the_reason",
    ),
    (
        "gpunode/components/containerd/editor.py",
        'put(nvidia, "privileged_without_host_devices", False)',
        "pass",
        "test_containerd_editor.py::test_a_privileged_container_sees_the_host_s_devices",
    ),
    (
        "gpunode/base/toml_edit.py",
        "if rendered is None or not same(_read(rendered), desired):",
        "if rendered is None:",
        "test_toml_edit.py::test_an_edit_that_would_say_something_else_is_refused",
    ),
    (
        "gpunode/components/containerd/state.py",
        "self.configured_at > self.started_at",
        "int(self.configured_at) > int(self.started_at)",
        "test_readings.py::test_a_file_written_in_the_second_of_the_start_makes_the_daemon_stale",
    ),
    (
        "gpunode/base/probe_output.py",
        "stripped[-1] != END",
        "False",
        "test_readings.py::test_a_truncated_answer_is_not_taken_for_a_whole_one",
    ),
    (
        "facts/base.py",
        "except Exception as error:",
        "except KeyError as error:",
        "test_readings.py::test_garbage_in_place_of_a_node_is_a_fact_process_error",
    ),
    (
        "gpunode/components/driver/state.py",
        "self.loaded_version != self.module_version",
        "False",
        "test_verify.py::test_an_upgrade_under_a_loaded_module_is_pending_not_drift",
    ),
    (
        "gpunode/components/cuda/decide.py",
        "if actual.default_path == LINK:",
        "if False:",
        "test_decide_cuda.py::test_a_folder_in_the_place_of_the_link_is_told_by_drift_as_by_the_run",
    ),
    (
        "gpunode/packages/repositories/decide.py",
        "found == (to_be,)",
        "wanted in found",
        "test_verify.py::test_a_key_that_is_not_the_pinned_one_is_named",
    ),
    (
        "gpunode/packages/repositories/decide.py",
        "permissions == PERMISSIONS",
        'permissions.startswith("644 ")',
        "test_verify.py::test_a_keyring_that_others_may_change_or_apt_cannot_read_is_named",
    ),
    (
        "gpunode/components/containerd/decide.py",
        "forbidden = is_forbidden(Disruption.restart, desired.allowed, actual.shims)",
        "forbidden = False",
        "test_operations.py::test_containerd_is_left_alone_where_containers_run_and_a_restart_is_not_allowed",
    ),
    (
        "gpunode/components/containerd/decide.py",
        "elif to_come is not None and is_forbidden(Disruption.restart, desired.allowed, actual.shims):",
        "elif False:",
        "test_containerd_merged.py::"
        "test_what_takes_no_restart_is_written_under_running_containers_and_the_node_is_told_not_to_restart",
    ),
    (
        "operations/systemd.py",
        "if not present.enabled:",
        "if False:",
        "test_operations.py::test_a_unit_gets_what_it_lacks_and_nothing_else",
    ),
    (
        "gpunode/system/smi.py",
        '124: "hangs"',
        '124: "ok"',
        "test_readings.py::test_each_way_in_which_nvidia_smi_fails_has_its_name",
    ),
    (
        "gpunode/base/versions.py",
        "parsed(version).release[: len(desired)] == desired",
        "str(parsed(version)).startswith(branch)",
        "test_readings.py::test_a_package_fits_a_rule_by_its_upstream_version",
    ),
    (
        "gpunode/settings/component.py",
        'extra="forbid"',
        'extra="ignore"',
        "test_settings.py",
    ),
    (
        "templates/scripts/driver.sh",
        "9|12|18|124|137)",
        "9|12|124|137)",
        "test_driver_transaction.py",
    ),
    (
        "templates/scripts/driver.sh",
        "back || return 1",
        "back || true",
        "test_driver_transaction.py::test_what_cannot_be_put_back_stays_journalled_until_a_later_run_has_done_it",
    ),
    (
        "templates/scripts/apt_driver.sh",
        "apt-mark hold $(awk",
        "true $(awk",
        "test_driver_transaction.py",
    ),
    (
        "templates/scripts/driver.sh",
        "runfile_back || return 1",
        "true",
        "test_runfile_transaction.py::test_a_driver_that_does_not_load_is_put_back_by_the_file_of_before",
    ),
    (
        "templates/scripts/runfile_installer.sh",
        'genuine "$runfile" &&',
        "true ||",
        "test_runfile_transaction.py::test_a_file_that_was_altered_since_it_came_is_removed_and_not_run",
    ),
    (
        "templates/scripts/runfile_fetch.sh",
        "--continue-at -",
        "",
        "test_runfile_fetch.py::test_a_transfer_that_was_cut_is_kept_and_resumed_by_the_next_run",
    ),
    (
        "gpunode/components/toolkit/configuration.py",
        "put(table, key[-1], value)",
        "table.pop(key[-1], None), table.update({key[-1]: value})",
        "test_toolkit_configuration.py::test_each_setting_is_one_key_and_comments_in_its_line_stay",
    ),
    (
        "gpunode/components/toolkit/configuration.py",
        "or type(present) is not type(value)",
        "",
        "test_toolkit_configuration.py::test_a_difference_names_key_and_both_sides",
    ),
    (
        "gpunode/components/toolkit/specification.py",
        "if stale:",
        "if False:",
        "test_toolkit.py::test_each_difference_is_one_finding_and_one_step",
    ),
    (
        "templates/scripts/replace_file.sh",
        'as_read "$target" "$read"',
        ":",
        "test_placing.py::test_a_file_that_is_no_more_what_was_read_stays",
    ),
    (
        "templates/scripts/mig_cdi.sh",
        """if [ "$(head -n 1 "$cdi" 2>/dev/null)" != "$mark" ]; then""",
        "if false; then",
        "test_mig_transaction.py::test_a_cdi_specification_that_somebody_puts_there_as_gpunode_s_is_made_anew_stays",
    ),
    (
        "gpunode/components/toolkit/state.sh",
        r"""'"?kind"?: *"?nvidia\.com/gpu|""",
        r"""'nvidia\.com/gpu|""",
        "test_toolkit.py::test_specifications_are_found_by_their_kind_and_dated_by_their_libcuda",
    ),
    (
        "templates/scripts/cdi_generate.sh",
        'proven "$work/marked"',
        ":",
        "test_toolkit.py::test_a_specification_of_another_driver_does_not_take_the_place_of_what_is_there",
    ),
    (
        "operations/families/toolkit_hold.py",
        "let_go = sorted((ours & set(state.held)) - set(keep))",
        "let_go = sorted(set(state.held) - set(keep))",
        "test_toolkit.py::test_only_what_gpunode_held_is_let_go",
    ),
    (
        "gpunode/components/smoke.py",
        "if device not in self.reloaded.devices",
        "if False",
        "test_smoke.py::test_each_fault_is_told_with_what_to_do",
    ),
    (
        "operations/smoke.py",
        "not host.state.is_executing",
        "False",
        "test_smoke.py::test_a_dry_run_starts_no_container",
    ),
    # Of a runtime's transaction: for each way to break it, the line that stands against that.
    (
        "gpunode/base/toml_edit.py",
        "except tomllib.TOMLDecodeError as error:",
        "except KeyError as error:",
        "test_containerd_editor.py::test_what_cannot_be_edited_is_refused_with_the_reason",
    ),
    (
        "operations/docker.py",
        "raise missing(PROGRAM, state.binary)",
        "pass",
        "test_docker_change.py::test_what_cannot_be_changed_is_refused_with_the_reason",
    ),
    (
        "templates/scripts/runtime.sh",
        'base64 -d | stage_file "$path" - || {',
        'base64 -d | stage_file "$path" - || true || {',
        "test_runtime_transaction.py::test_a_file_that_cannot_be_written_is_told_and_the_target_is_not_blamed",
    ),
    (
        "templates/scripts/runtime.sh",
        "process=$(main_process); sleep 2",
        "return 0",
        "test_runtime_transaction.py::"
        "test_a_daemon_that_ends_after_its_start_is_found_out_and_the_old_file_comes_back_with_it",
    ),
    (
        "templates/scripts/runtime.sh",
        'if [ "$state" = ok ]; then',
        'if [ -n "$state" ]; then',
        "test_runtime_transaction.py::"
        "test_a_plugin_that_does_not_come_up_is_told_in_its_own_word_and_the_old_file_comes_back",
    ),
    (
        "templates/scripts/runtime.sh",
        'check "$checkpoint/staged" ||',
        "true ||",
        "test_runtime_transaction.py::test_what_containerd_refuses_never_comes_into_place_and_restarts_nothing",
    ),
    (
        "templates/scripts/runtime.sh",
        'if [ -n "$lacking" ]; then\n    reject',
        "if false; then\n    reject",
        "test_runtime_transaction.py::test_what_containerd_reads_and_does_not_obey_is_rejected",
    ),
    (
        "templates/scripts/runtime.sh",
        "put_files_back || return 1",
        ":",
        "test_runtime_transaction.py::"
        "test_a_daemon_that_ends_after_its_start_is_found_out_and_the_old_file_comes_back_with_it",
    ),
    (
        "templates/scripts/runtime.sh",
        'if [ -n "$merged" ]; then',
        "if false; then",
        "test_runtime_transaction.py::"
        "test_a_change_that_must_not_restart_is_put_back_where_it_turns_out_to_take_a_restart",
    ),
    (
        "templates/scripts/placing.sh",
        '[ "$2" != unread ] && [',
        "false && [",
        "test_keeping.py::test_a_file_that_is_not_what_was_read_stops_the_change_before_anything_is_kept",
    ),
    (
        "templates/scripts/keeping.sh",
        'cp -Pp "$real" "$checkpoint/files$real"',
        'cp -p "$real" "$checkpoint/files$real"',
        "test_keeping.py::test_a_link_that_went_or_was_written_over_comes_back_as_a_link",
    ),
    (
        "templates/scripts/keeping.sh",
        '{ as_before "$lost" "$real" && sync "$lost"; }',
        'cp -p "$real" "$lost"',
        "test_keeping.py::test_what_somebody_wrote_since_is_kept_and_named_and_others_cannot_write_it",
    ),
    (
        "templates/scripts/keeping.sh",
        'note_text "$real" "$new" && sync "$new"',
        'sync "$new"',
        "test_keeping.py::test_what_was_kept_comes_back_with_its_mode_and_what_was_not_there_goes",
    ),
    (
        "gpunode/components/containerd/merged.py",
        "return type(one) is type(other) and bool(one == other)",
        "return bool(one == other)",
        "test_containerd_merged.py::test_a_value_of_another_kind_is_another_value",
    ),
    (
        "gpunode/components/containerd/merged.py",
        "if any(path not in after for path in before):",
        "if False:",
        "test_containerd_merged.py::test_a_key_that_goes_may_change_anything",
    ),
    (
        "operations/containerd.py",
        "drain=drain if felt else None",
        "drain=drain",
        "test_drain_operation.py::test_nothing_is_asked_of_the_cluster_for_a_change_that_takes_no_restart",
    ),
    (
        "gpunode/components/docker/decide.py",
        "tuple(pending(item, waits) for item in group)",
        'tuple(pending(item, waits) if item.what == "cgroup driver" else item for item in group)',
        "test_docker_change.py::test_all_that_comes_with_a_restart_that_waits_is_pending_to_verdict_plan_and_rollout_as_to_"
        "the_run",
    ),
    (
        "gpunode/components/crio/decide.py",
        "_waits(desired, actual) if actual.active and bad(*answers) else None",
        "None",
        "test_crio.py::test_a_restart_waits_where_containers_run_and_nothing_is_allowed",
    ),
    (
        "gpunode/components/crio/change.py",
        "if found != value:",
        "if not found:",
        "test_crio.py::test_what_no_drop_in_mends_is_refused_with_the_file",
    ),
    (
        "gpunode/components/crio/drop_in.py",
        'filled(table_in(runtimes, "nvidia"), beside.like())',
        "pass",
        "test_crio.py::test_the_new_runtime_takes_over_where_conmon_is_and_what_the_file_says_otherwise_stays",
    ),
    (
        "templates/scripts/keeping.sh",
        "${aside:-${1%/*}}",
        "${1%/*}",
        "test_crio_transaction.py::test_what_somebody_wrote_meanwhile_is_kept_where_crio_does_not_read_it",
    ),
    (
        "gpunode/components/mps/decide.py",
        "if is_forbidden(Disruption.restart, desired.allowed, len(to_come.felt)):",
        "if False:",
        "test_mps_pending.py::test_what_waits_for_clients_is_pending_to_verdict_plan_and_rollout_as_to_the_run",
    ),
    (
        "gpunode/components/mps/decide.py",
        "Disruption.restart if by_unit else Disruption.nothing",
        "Disruption.nothing",
        "test_mps_pending.py::test_a_compute_mode_costs_a_restart_where_the_unit_sets_another_one_and_nothing_where_it_strayed",
    ),
]


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """Return a copy of the source, in which something may be broken."""
    for part in PARTS:
        source = CHECKOUT / part
        if source.is_dir():
            shutil.copytree(source, tmp_path / part, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, tmp_path / part)
    return tmp_path


def run(copy: Path, test: str) -> subprocess.CompletedProcess[str]:
    # The copy stands first on the path: an editable install would otherwise lend the source that is not broken.
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", f"tests/unit/{test}"],
        cwd=copy,
        env={**os.environ, "PYTHONPATH": str(copy)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_every_break_is_of_something_that_stands_there() -> None:
    gone = [(path, there) for path, there, _, _ in BREAKS if there not in (CHECKOUT / path).read_text()]
    assert gone == []


@pytest.mark.tier3
@pytest.mark.parametrize("path, there, broken, test", BREAKS, ids=[f"{row[0]}: {row[2]}" for row in BREAKS])
def test_a_break_is_caught_by_its_test(copy: Path, path: str, there: str, broken: str, test: str) -> None:
    text = (copy / path).read_text()
    assert run(copy, test).returncode == 0, "the test fails without the break"
    (copy / path).write_text(text.replace(there, broken))
    done = run(copy, test)
    assert done.returncode == 1, done.stdout[-2000:]
    assert "failed" in done.stdout
