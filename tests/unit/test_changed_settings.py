"""Is every setting of the model in the test that changes it on a node (tests/molecule/*/test_settings.py)?"""

from __future__ import annotations

import pytest

from gpunode.settings import SettingsError, component_models, settings_from
from tests.support.changed_settings import CLUSTER, EXAMPLES, METHODS, settings_of_nodes, values

pytestmark = pytest.mark.pure
SETTINGS = dict(settings_of_nodes())


@pytest.mark.parametrize("setting", sorted(SETTINGS))
def test_each_setting_has_a_value_that_changes_it_or_a_reason_why_that_is_no_difference(setting: str) -> None:
    changed = list(values(setting, SETTINGS[setting], {}))
    assert setting in METHODS or changed, f"name a value of {setting} in tests/support/changed_settings.py"


def test_no_setting_is_named_that_is_not_there() -> None:
    assert {*METHODS, *EXAMPLES} <= SETTINGS.keys()
    assert not METHODS.keys() & EXAMPLES.keys()
    assert set(CLUSTER) <= component_models().keys()


def test_a_setting_that_nobody_named_a_value_of_is_noticed() -> None:
    assert list(values("driver.new", str | None, {})) == []
    assert [*values("cuda.profile", bool, {})] == [{"cuda": {"profile": False}}]
    with pytest.raises(SettingsError):
        settings_from({"driver": {"new": "one"}})
