"""Build hook of the wheel: it adds config.py, because hatchling's `sources` moves folders but not single files."""

from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Repository(BuildHookInterface):
    """Add the config.py that `gpunode init` copies."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        # Not in an editable install: the copy would not follow the checkout's file.
        if version == "standard":
            build_data["force_include"]["config.py"] = "gpunode/repository/config.py"
