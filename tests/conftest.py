"""Settings of every test."""

import os

import pytest

# A case that fails shows what differs.
pytest.register_assert_rewrite("tests.support.cases")

# Findings of tests belong to no history; tests of the history name their own.
os.environ["GPUNODE_HISTORY"] = "none"
