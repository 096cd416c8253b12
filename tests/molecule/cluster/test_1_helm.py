"""The life of a release on a real API server, kept by the project's operation with helm 3 and then with helm 4.

The chart is a fixture of the lab's; kubelets and plugin are SIMULATED.
"""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from gpunode.kubernetes.helm.release import Status
from tests.molecule.cluster.releases import CHART, CONFIG_MAP, NAME, SHORT, KeptRelease

pytestmark = [pytest.mark.real, pytest.mark.life]

DAEMON_SET = f"{NAME}-nvidia-device-plugin"
PROGRAM = "nvidia-device-plugin-ctr"
# The kubelets' stand-in finds no image of this tag.
NO_SUCH_IMAGE: dict[str, Any] = {"image_tag": "does-not-exist"}


def _program(release: KeptRelease) -> dict[str, Any]:
    """Return the plugin's own container, which a sidecar stands beside."""
    every = release.live("daemonset", DAEMON_SET)["spec"]["template"]["spec"]["containers"]
    found: dict[str, Any] = next(each for each in every if each["name"] == PROGRAM)
    return found


def _states(release: KeptRelease) -> list[Status]:
    return [revision.status for revision in release.history()]


def test_a_release_is_installed_with_its_namespace(release: KeptRelease) -> None:
    kept = release.keep()
    assert (kept.failure, _states(release)) == ("", [Status.DEPLOYED])
    assert "none" in release.live("configmap", CONFIG_MAP)["data"]


def test_the_second_time_it_gets_no_new_revision(release: KeptRelease) -> None:
    kept = release.keep()
    assert kept.steps == () and kept.failure == "" and "as desired" in kept.noop
    assert _states(release) == [Status.DEPLOYED]


def test_what_was_added_beside_it_is_no_difference(release: KeptRelease) -> None:
    release.kubectl("label", "configmap", CONFIG_MAP, "team=a")
    release.kubectl("annotate", "daemonset", DAEMON_SET, "note=seen")
    assert release.keep().steps == ()


def test_values_changed_by_hand_are_found_and_healed(release: KeptRelease) -> None:
    release.kubectl("patch", "configmap", CONFIG_MAP, "--type", "merge", "--patch", '{"data": {"none": "changed: 1"}}')
    image = {"spec": {"template": {"spec": {"containers": [{"name": PROGRAM, "image": "registry.invalid/other:1"}]}}}}
    release.kubectl("patch", "daemonset", DAEMON_SET, "--patch", json.dumps(image))
    kept = release.keep()
    assert kept.failure == "" and "changed by hand" in kept.steps[0]
    assert "changed: 1" not in release.live("configmap", CONFIG_MAP)["data"]["none"]
    container = _program(release)
    assert container["image"].startswith("fixture.invalid/")
    assert release.keep().steps == ()


def test_an_object_that_was_deleted_is_found_and_made_again(release: KeptRelease) -> None:
    release.kubectl("delete", "configmap", CONFIG_MAP)
    assert "changed by hand" in release.keep().steps[0]
    assert "none" in release.live("configmap", CONFIG_MAP)["data"]


def test_a_failed_upgrade_is_rolled_back_with_the_reason(release: KeptRelease) -> None:
    before = len(release.history())
    kept = release.keep(SHORT, **NO_SUCH_IMAGE)
    assert "not ready in time" in kept.failure
    *_, failed, back = release.history()
    assert (failed.number, failed.status) == (before + 1, Status.FAILED)
    assert (back.status, back.rolled_back_to) == (Status.DEPLOYED, before)
    container = _program(release)
    assert not container["image"].endswith(":does-not-exist")


def test_it_is_not_tried_again_until_the_settings_change(release: KeptRelease) -> None:
    before = release.history()
    kept = release.keep(SHORT, **NO_SUCH_IMAGE)
    assert "rolled back" in kept.failure and "settings change" in kept.failure
    assert release.history() == before
    assert release.keep().steps == () and release.history() == before
    kept = release.keep(image_tag="v0.20.0")
    assert kept.failure == "", kept


def test_a_release_that_a_killed_helm_left_pending_is_recovered_when_nobody_can_be_at_work(
    release: KeptRelease,
) -> None:
    good = release.history()[-1].number
    values = ("--set", "image.tag=does-not-exist", "--reuse-values", "--wait")
    release.cut_off("upgrade", NAME, str(CHART), *values)
    assert _states(release)[-1] is Status.PENDING_UPGRADE
    asked: dict[str, Any] = {"image_tag": "v0.20.0"}
    assert "another helm" in release.keep(**asked).failure
    assert _states(release)[-1] is Status.PENDING_UPGRADE
    time.sleep(SHORT)
    kept = release.keep(SHORT, **asked)
    assert kept.failure == "" and f"rollback to revision {good}" in kept.steps[0]
    assert _states(release)[-1] is Status.DEPLOYED
    assert release.keep(**asked).steps == ()


def test_a_first_installation_that_fails_leaves_nothing(release: KeptRelease) -> None:
    release.helm("uninstall", NAME, "--wait")
    kept = release.keep(SHORT, **NO_SUCH_IMAGE)
    assert "not ready in time" in kept.failure
    assert release.history() == []
    assert release.keep().failure == ""
