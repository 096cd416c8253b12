"""Settings of every test."""

import os

# Findings of tests belong to no history; tests of the history name their own.
os.environ["GPUNODE_HISTORY"] = "none"
