"""Settings of the proxy through which a node reaches repositories and registries."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field

from gpunode.settings.component import Component, matching

# Each becomes two lines of apt's configuration, which travels as one argument of a command (128 KiB).
_MOST = 64
_HOST = r"([A-Za-z0-9._-]+|\[[0-9A-Fa-f:]+\])"
_NAME = r"[A-Za-z0-9_][A-Za-z0-9_-]*(\.[A-Za-z0-9_-]+)*"
_IPV6 = r"[0-9A-Fa-f]{0,4}(:[0-9A-Fa-f]{0,4}){2,8}"
_PROXY = rf"https?://{_HOST}(:\d{{1,5}})?/?"


def _without_credentials(url: str) -> str:
    # apt.conf and units are world-readable, pyinfra prints host data, and commands show in the list of processes.
    if "@" in url:
        raise ValueError(
            "holds a user or password, which would end up in world-readable files and in logs; leave it out, and let "
            "the proxy know the node by its address or keep its credentials on the node (docs/security.md)"
        )
    return url


ProxyUrl = Annotated[
    str, AfterValidator(_without_credentials), matching(_PROXY, "an address such as 'http://proxy.example.org:3128'")
]
NoProxy = Annotated[
    str,
    matching(
        rf"\*|(\*?\.)?{_NAME}(:\d{{1,5}})?|{_NAME}/\d{{1,2}}|{_IPV6}(/\d{{1,3}})?|\[{_IPV6}\](:\d{{1,5}})?",
        "a host name, a domain such as '.example.org', an address or a network",
    ),
]


def _listed(value: Any) -> Any:
    # Settings are frozen, so the list that a person writes is kept as a tuple; all else is for the field to refuse.
    return tuple(value) if isinstance(value, list) else value


class ProxySettings(Component):
    """The proxy for apt, for downloads and for containerd's unit (image pulls)."""

    http: ProxyUrl | None = None
    """Proxy for http://, without user and password (docs/security.md)."""
    https: ProxyUrl | None = None
    """Proxy for https://; not given: none, `http` is not taken instead."""
    no_proxy: Annotated[tuple[NoProxy, ...], BeforeValidator(_listed)] = Field((), max_length=_MOST)
    """List of names, domains, addresses and networks that are reached directly."""

    @property
    def environment(self) -> dict[str, str]:
        """Return http_proxy, https_proxy and no_proxy as programs read them from their environment; empty if none."""
        if not (self.http or self.https):
            return {}
        found = {"http_proxy": self.http, "https_proxy": self.https, "no_proxy": ",".join(self.no_proxy)}
        return {name: value for name, value in found.items() if value}

    @property
    def direct_hosts(self) -> tuple[str, ...]:
        """Return the entries of `no_proxy` that apt knows: it compares whole names, and its syntax takes no others."""
        return tuple(entry for entry in self.no_proxy if re.fullmatch(_NAME, entry, re.ASCII))
