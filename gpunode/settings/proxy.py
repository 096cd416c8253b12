"""Settings of the proxy through which a node reaches repositories and registries."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, BeforeValidator, Field

from gpunode.settings.component import Component, matching

_HOST = r"([A-Za-z0-9._-]+|\[[0-9A-Fa-f:]+\])"
_PROXY = rf"https?://([^\s'\"\\`$;&|<>(){{}}@/]+@)?{_HOST}(:\d{{1,5}})?/?"

ProxyUrl = Annotated[str, AfterValidator(matching(_PROXY, "an address such as 'http://proxy.example.org:3128'"))]
NoProxy = Annotated[
    str,
    AfterValidator(
        matching(
            r"[A-Za-z0-9.*_:\[\]-]+(/\d{1,3})?", "a host name, a domain such as '.example.org', an address or a network"
        )
    ),
]


def _listed(value: Any) -> Any:
    # Settings are frozen, so the list that a person writes is kept as a tuple; all else is for the field to refuse.
    return tuple(value) if isinstance(value, list) else value


class ProxySettings(Component):
    """Say through which proxy a node reaches the outside."""

    summary: ClassVar[str] = "The proxy for apt, for downloads and for containerd's unit (image pulls)."

    http: ProxyUrl | None = Field(None, description="Proxy for http://; a user and password may stand in it.")
    https: ProxyUrl | None = Field(
        None, description="Proxy for https://; not given: none, `http` is not taken instead."
    )
    no_proxy: Annotated[tuple[NoProxy, ...], BeforeValidator(_listed)] = Field(
        (), description="List of names, domains, addresses and networks that are reached directly."
    )
