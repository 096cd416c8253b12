"""What apt is told of a repository."""

from __future__ import annotations


def source_text(uri: str, keyring: str, suite: str = "/", components: str = "") -> str:
    """Return a deb822 source for one repository that trusts one keyring alone; `suite` is `/` for a flat one."""
    lines = ["# Written by gpunode", "Types: deb", f"URIs: {uri}", f"Suites: {suite}"]
    if components:
        lines.append(f"Components: {components}")
    return "\n".join([*lines, f"Signed-By: {keyring}", ""])
