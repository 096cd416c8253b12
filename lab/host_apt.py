"""What this machine's own apt needs to reach Debian: mirror, proxy, certificates. The nodes get the same."""

from __future__ import annotations

import functools
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

_DEFAULT_MIRROR = "http://deb.debian.org/debian"
_DEFAULT_SECURITY = "http://deb.debian.org/debian-security"
_CERTIFICATES = Path("/usr/local/share/ca-certificates")
# Credentials and client certificates name files of this machine, so they are not carried over.
_CARRIED = re.compile(
    r"^(Acquire::(https?::(?:[\w.-]+::)?(?:Proxy|CAInfo|Verify-Peer|Verify-Host|Timeout)"
    r'|Check-Valid-Until|Check-Date)) "(.*)";$',
    re.IGNORECASE,
)
# Where update-ca-certificates puts the bundle, here and in a node.
_BUNDLE = "/etc/ssl/certs/ca-certificates.crt"


@dataclass(frozen=True)
class HostApt:
    """How apt reaches Debian from this machine.

    `configuration` is the text of an apt.conf file; `certificates` are PEM files to trust, as (name, text).
    """

    mirror: str
    security: str
    configuration: str
    certificates: tuple[tuple[str, str], ...]

    def sources(self, suite: str) -> str:
        """Return the deb822 sources of a node: the suite, its updates and its security updates."""
        shared = "Components: main contrib non-free\nSigned-By: /usr/share/keyrings/debian-archive-keyring.gpg\n"
        return (
            f"Types: deb\nURIs: {self.mirror}\nSuites: {suite} {suite}-updates\n{shared}"
            f"\nTypes: deb\nURIs: {self.security}\nSuites: {suite}-security\n{shared}"
        )


@functools.cache
def host_apt() -> HostApt:
    """Read this machine's apt configuration; without apt, or on another distribution, Debian's public mirror.

    Once a process: apt takes a second to answer.
    """
    mirrors = _output("apt-get", "indextargets", "--format", "$(REPO_URI)", "Identifier: Packages").split()
    return HostApt(
        mirror=_first(mirrors, r"/debian/?", _DEFAULT_MIRROR),
        security=_first(mirrors, r"/debian-security/?", _DEFAULT_SECURITY),
        configuration=carried(_output("apt-config", "dump"), dict(os.environ)),
        certificates=tuple(
            (path.name, path.read_text(encoding="utf-8", errors="replace"))
            for path in sorted(_CERTIFICATES.glob("**/*.crt"))
        ),
    )


def carried(dump: str, environment: dict[str, str]) -> str:
    """Return the apt.conf lines that a node needs, from `apt-config dump` and the proxy variables."""
    settings = {
        match[1]: match[3] for line in dump.splitlines() if (match := _CARRIED.match(line.strip())) and match[3]
    }
    known = {key.lower() for key in settings}
    for scheme in ("http", "https"):
        proxy = environment.get(f"{scheme}_proxy") or environment.get(f"{scheme.upper()}_PROXY")
        if proxy and f"acquire::{scheme}::proxy" not in known:
            settings[f"Acquire::{scheme}::Proxy"] = proxy
    for key in [key for key in settings if key.lower().endswith("::cainfo")]:
        settings[key] = _BUNDLE
    if any(key.lower().endswith("::proxy") for key in settings):
        # The lab's own repositories are served inside each node.
        settings["Acquire::http::Proxy::127.0.0.1"] = "DIRECT"
    return "".join(f'{key} "{value}";\n' for key, value in sorted(settings.items()))


def _first(uris: list[str], ending: str, default: str) -> str:
    wanted = re.compile(r"https?://.*" + ending + "$")
    return next((uri.rstrip("/") for uri in uris if wanted.match(uri)), default)


def _output(*command: str) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60).stdout
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return ""
