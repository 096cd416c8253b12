"""Settings of a GPU node: one validated model per component, and one message for all mistakes of all hosts."""

from gpunode.settings.component import Component
from gpunode.settings.driver import CudaSettings, DriverSettings
from gpunode.settings.hosts import check_hosts
from gpunode.settings.model import OWN_DATA_PREFIX, Settings, component_models, settings_from
from gpunode.settings.problems import Problem, SettingsError
from gpunode.settings.runtimes import DockerSettings, ToolkitSettings

__all__ = [
    "OWN_DATA_PREFIX",
    "Component",
    "CudaSettings",
    "DockerSettings",
    "DriverSettings",
    "Problem",
    "Settings",
    "SettingsError",
    "ToolkitSettings",
    "check_hosts",
    "component_models",
    "settings_from",
]
