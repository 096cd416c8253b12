"""What is known of container runtimes and of NVIDIA's toolkit: containerd.yaml, runtimes.yaml and toolkit.yaml."""

from __future__ import annotations

from dataclasses import dataclass

from gpunode.base.tables.reading import Row, Table


@dataclass(frozen=True)
class ContainerdSchema(Row):
    """Hold which configuration schemas a range of containerd versions accepts, and the id of its CRI plugin."""

    containerd: str
    default_version: int
    accepts: tuple[int, ...]
    cri_plugin: str
    verified: bool = True
    version_1_plugins: bool = False


@dataclass(frozen=True)
class Containerd:
    """Hold containerd.yaml: schemas, and versions of containerd.

    From `drop_ins_merge_since` on it merges a drop-in with the root file key by key. Before `default_table_before` it
    reads the table `default_runtime`; before `byte_order_mark_before` it takes a file that begins with such a mark.
    """

    schemas: tuple[ContainerdSchema, ...]
    drop_ins_merge_since: str
    default_table_before: str
    byte_order_mark_before: str


@dataclass(frozen=True)
class DockerClient(Row):
    """Hold from which release on a distribution has docker's client as a package of its own, and its name."""

    id: str
    since: str
    package: str


@dataclass(frozen=True)
class Toolkit(Row):
    """Hold toolkit.yaml: the first versions of the container toolkit that have something.

    `modes` of its runtime; `hooks` that a CDI specification may name; `refresh_since`: nvidia-cdi-refresh;
    `mounts_in_mode_cdi`: its mode `cdi` takes mounts of a plain name; `ldconfig_of_node`: a path needs an @.
    Of its config.toml: `keys` -> what they are, `files`: key -> modes that need its file, `runtimes` where it has none.
    """

    modes: Table[str, str]
    hooks: Table[str, str]
    refresh_since: str
    mounts_in_mode_cdi: str
    keys: Table[str, str]
    files: Table[str, tuple[str, ...]]
    ldconfig_of_node: str
    runtimes: tuple[str, ...]
