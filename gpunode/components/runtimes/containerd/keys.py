"""The spelling of keys in containerd's files: two keys are the same where containerd takes them for the same.

Measured with containerd 1.6.20, 1.7.24, 2.1.9, 2.3.7 and 2.4.2, and with the TOML libraries that these use.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from functools import lru_cache
from typing import Any, cast

from gpunode.base import versions
from gpunode.base.toml_edit import Table, TableView

# Tables whose keys are names: containerd takes them letter by letter.
_OF_NAMES = ("plugins", "runtimes")
# The keys and tables that gpunode reads or writes.
_TOP = ("version", "imports", "plugins", "disabled_plugins", "required_plugins")
_CRI = ("enable_cdi", "systemd_cgroup", "registry", "config_path", "mirrors", "configs", "containerd", "no_pivot")
_CONTAINERD = ("default_runtime_name", "default_runtime", "untrusted_workload_runtime", "runtimes")
_RUNTIME = ("runtime_type", "runtime_engine", "runtime_root", "runtime_path", "sandboxer", "sandbox_mode", "io_type")
_PRIVILEGED = ("privileged_without_host_devices", "privileged_without_host_devices_all_devices_allowed")
_OPTIONS = ("options", "BinaryName", "SystemdCgroup")
# The key in lower case -> in containerd's spelling.
_KNOWN = {key.lower(): key for key in (*_TOP, *_CRI, *_CONTAINERD, *_RUNTIME, *_PRIVILEGED, *_OPTIONS)}


@lru_cache(maxsize=256)
def folds(containerd_version: str | None) -> bool:
    """Return whether this containerd takes keys without regard to case: 2.0 and newer do."""
    return containerd_version is None or versions.first_numbers(containerd_version, 1) >= (2,)


def spelling(table: Iterable[str], key: str, containerd_version: str | None) -> str | None:
    """Return the key of a table that containerd takes for `key`; None where the table has none.

    containerd 2 compares without regard to case, and of several spellings the last in the order of bytes counts.
    containerd 1 tries four spellings in turn.
    """
    if folds(containerd_version):
        return max((each for each in table if each.lower() == key.lower()), default=None)
    present = set(table)
    tried = (key, key.lower(), key.upper(), key[:1].lower() + key[1:])
    return next((each for each in tried if each in present), None)


class AsRead(TableView):
    """A table of a file or dump with the keys that gpunode knows in their own spelling, whatever the file's is."""

    def __init__(
        self, table: Table, version: str | None, root: Mapping[str, Any] | None = None, names: bool = False
    ) -> None:
        """Take the table of a file.

        version: of containerd
        root: the root file's table, with which containerd merges this one letter by letter
        names: whether the keys are names, which are taken letter by letter
        """
        self.table, self._version, self._names = table, version, names
        self._root: Mapping[str, Any] = root if isinstance(root, Mapping) else {}

    def spelled(self, key: str) -> str:
        """Return the key to write: the present spelling where there is one."""
        if self._names or key not in _KNOWN.values():
            return key
        present = spelling({*self.table, *self._root}, key, self._version)
        # The defaults of containerd 2 have its own spelling of the options of runc, and win over a lesser one.
        return key if present is None or present < key else present

    def _present(self, key: str) -> str:
        known = key in _KNOWN.values() and not self._names
        return (spelling(self.table, key, self._version) or key) if known else key

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and self._present(key) in self.table

    def __getitem__(self, key: str) -> Any:
        value = self.table[self._present(key)]
        if not isinstance(value, MutableMapping):
            return value
        root = self._root.get((key if self._names else spelling(self._root, key, self._version)) or key)
        return AsRead(value, self._version, root, key in _OF_NAMES and not self._names)

    def __setitem__(self, key: str, value: Any) -> None:
        self.table[self.spelled(key)] = value

    def __delitem__(self, key: str) -> None:
        del self.table[self._present(key)]

    def __iter__(self) -> Iterator[str]:
        for key in [*self.table]:
            name = key if self._names else _KNOWN.get(key.lower(), key)
            if self._present(name) == key:
                yield name
            elif name != key:
                yield key

    def __len__(self) -> int:
        return sum(1 for _ in self)


def as_read(document: Mapping[str, Any], containerd_version: str | None) -> dict[str, Any]:
    """Return a parsed file or dump with the keys that gpunode knows in their own spelling."""
    return _plain(AsRead(cast(Table, document), containerd_version))


def _plain(table: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _plain(value) if isinstance(value, Mapping) else value for key, value in table.items()}
