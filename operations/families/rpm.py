"""Shell text for rpm, beneath dnf and zypper alike."""

from __future__ import annotations

from gpunode.base.shell_file import script_file

TRANSACTION = script_file("rpm", "rpm_driver")
INSTALL = script_file("rpm", "refuse_removal", "rpm_install")
