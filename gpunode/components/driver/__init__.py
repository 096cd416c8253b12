"""The NVIDIA driver: what a node has of it (`state`), and what is to be done about it (`decide`)."""

from gpunode.components.driver.state import DriverState, Service, module_fields, parse_driver

__all__ = ["DriverState", "Service", "module_fields", "parse_driver"]
