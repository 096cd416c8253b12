"""The NVIDIA kernel modules."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyinfra import host

from facts.driver import Driver
from operations.failure import OperationRefused, known, node_operation
from operations.script import script_command

# Secure boot refuses with "Key was rejected by service"; a missing GPU or the wrong flavour with "No such device".
_LOAD = """
modprobe nvidia || {
  echo "gpunode: the nvidia module on disk ($wanted) cannot be loaded. The kernel's own words:" >&2
  dmesg 2>/dev/null | grep -iE 'nvrm|nvidia|rejected' | tail -n 5 >&2
  echo "gpunode: look for nouveau in lsmod, for secure boot, for a flavour that this GPU does not take" >&2; exit 1; }
modprobe nvidia_uvm || { echo "gpunode: nvidia is loaded, but nvidia_uvm, without which CUDA does not start, is not" >&2
  exit 1; }
loaded=$(cat /sys/module/nvidia/version)
[ "$loaded" = "$wanted" ] || { echo "gpunode: loaded is $loaded, on disk is $wanted" >&2; exit 1; }
"""


@node_operation
def module_loaded() -> Iterator[Any]:
    """Load nvidia and nvidia_uvm where they are not loaded, and check that they are the ones on disk.

    A loaded module of another version is left alone: to swap it takes a reset or a reboot, which the verdict reports
    as pending.
    """
    driver = known(host.get_fact(Driver), "the driver's state")
    if driver.reboot_pending:
        host.noop(f"reboot pending: {driver.loaded_version} is loaded, {driver.module_version} is on disk")
        return
    if driver.loaded_version is not None and driver.uvm_loaded:
        host.noop(f"the module {driver.loaded_version} is loaded, and nvidia_uvm")
        return
    # In preparation the packages may be yet to come; in execution an absent module is an error.
    if driver.module_version is None and host.state is not None and host.state.is_executing:
        raise OperationRefused(
            f"there is no nvidia module on disk for this kernel; see `dkms status` and the headers of {host.name}"
        )
    yield script_command(_LOAD, wanted=driver.module_version or "")
