"""Test machines of a continuous-integration job: where they come from, and whether they are ready."""
