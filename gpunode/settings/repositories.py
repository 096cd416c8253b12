"""Settings of package repositories, the public ones or a mirror of them, and of the proxy on the way to them."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field

from gpunode.base import tables
from gpunode.settings.component import Component, filled, holding_only, is_address, matching

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


PLACEHOLDERS = ("distribution", "architecture", "channel", "os_id")


def _fingerprint(text: str) -> str:
    compact = text.replace(" ", "").upper()
    if re.fullmatch(r"[0-9A-F]{40}", compact) is None:
        raise ValueError(
            "must be a key's full fingerprint: 40 hexadecimal digits (spaces allowed), never a short key id"
        )
    return compact


Url = Annotated[str, is_address, holding_only(*PLACEHOLDERS)]
Fingerprint = Annotated[str, AfterValidator(_fingerprint)]


class Repository(Component):
    """A package repository and its key."""

    url: Url
    """Address of the repository; {distribution}, {architecture}, {channel}, {os_id} are filled in."""
    key_url: Url
    """Address of the public key that signs the repository."""
    key_fingerprint: Fingerprint
    """Full fingerprint of that key; a key with another one is refused and nothing is installed."""

    def at(self, **placeholders: str) -> Repository:
        """Return the repository with `{distribution}`, `{architecture}`, `{channel}` and `{os_id}` filled in.

        Raise KeyError where an address needs a placeholder that is not given.
        """
        addresses = {"url": filled(self.url, **placeholders), "key_url": filled(self.key_url, **placeholders)}
        return self.model_copy(update=addresses)


_PUBLIC = tables.repositories()


class CudaRepository(Repository):
    """NVIDIA's CUDA repository (driver and CUDA packages), or its mirror."""

    url: Url = _PUBLIC["cuda"].url
    key_url: Url = _PUBLIC["cuda"].key_url
    key_fingerprint: Fingerprint = _PUBLIC["cuda"].key_fingerprint


class ToolkitRepository(Repository):
    """The container toolkit's repository, or its mirror."""

    url: Url = _PUBLIC["toolkit"].url
    key_url: Url = _PUBLIC["toolkit"].key_url
    key_fingerprint: Fingerprint = _PUBLIC["toolkit"].key_fingerprint


class DockerRepository(Repository):
    """Docker's repository (containerd.io), or its mirror."""

    url: Url = _PUBLIC["docker"].url
    key_url: Url = _PUBLIC["docker"].key_url
    key_fingerprint: Fingerprint = _PUBLIC["docker"].key_fingerprint


class RepositoriesSettings(Component):
    """Where packages come from. A mirror is set by `url` alone; the key stays pinned by its fingerprint.
    `{distribution}` is debian12, ubuntu2204, …; `{architecture}` x86_64 or sbsa; `{channel}` toolkit.channel; `{os_id}`
    debian, ubuntu or rhel; `$(ARCH)` is left to apt, `$basearch` and `$releasever` to dnf and zypper. The defaults
    shown are apt's; on RHEL, its kin and SUSE those of the rpm repositories take their place, and Debian 13 and Ubuntu
    26.04 have keys of their own for NVIDIA's. Arch has none of them: everything comes from its own repositories, by the
    node's mirrorlist and keyring."""

    cuda: CudaRepository = Field(default_factory=lambda: CudaRepository.model_validate({}))
    """NVIDIA's CUDA repository."""
    toolkit: ToolkitRepository = Field(default_factory=lambda: ToolkitRepository.model_validate({}))
    """The container toolkit's repository."""
    docker: DockerRepository = Field(default_factory=lambda: DockerRepository.model_validate({}))
    """Docker's repository, for `containerd.source: docker-repository`."""

    def on(self, name: str, family: str, unverified_key: str | None = None, folder: str | None = None) -> Repository:
        """Return the repository `cuda`, `toolkit` or `docker` for a family of distributions.

        Where nothing is set, address and key are the family's public ones, or those of the distribution's own `folder`
        in NVIDIA's repository. With `unverified_key`, an address of the key of `cuda`, its fingerprint is the one that
        is set, and empty where none is.
        """
        found: Repository = getattr(self, name)
        public = tables.repositories(family, folder)[name]
        values = {"url": public.url, "key_url": public.key_url, "key_fingerprint": public.key_fingerprint}
        if unverified_key is not None and name == "cuda":
            values |= {"key_url": unverified_key, "key_fingerprint": ""}
        unset = {key: value for key, value in values.items() if key not in found.model_fields_set}
        return found.model_copy(update=unset)
