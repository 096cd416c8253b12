"""What a node boots next, and whether that kernel will find an NVIDIA module that it may load."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from packaging.version import InvalidVersion, Version

from gpunode.base.decision import target_digest
from gpunode.base.probe_output import decoded, repeated, timestamp, values
from gpunode.base.reading import ParseError, Reading


@dataclass(frozen=True)
class Kernel(Reading):
    """Hold one kernel that can boot.

    `headers` says whether a module can be built for it, `module_version` and `module_signer` tell of the nvidia module
    on its disk, `initramfs_written` is the time of its initial file system (Unix seconds), `initramfs_nouveau` says
    that it holds nouveau and no blacklist of it (None: it could not be looked into), `initramfs_read` that it was read
    for this answer, `compiler` is the major version of the gcc that built the kernel, where its configuration tells.
    `base` is the package that Arch's kernels say they are of: linux, linux-lts.
    """

    release: str
    headers: bool
    module_version: str | None = None
    module_signer: str | None = None
    initramfs_written: float | None = None
    initramfs_nouveau: bool | None = False
    initramfs_read: bool = False
    compiler: str | None = None
    base: str | None = None


@dataclass(frozen=True)
class DkmsBuild(Reading):
    """Hold a DKMS module; `kernel` is None where it is only added, and `state` is added, built or installed."""

    module: str
    version: str
    kernel: str | None
    state: str


@dataclass(frozen=True)
class Boot(Reading):
    """Hold the running kernel, those that can boot, and which one is next.

    `next_release` is None where the node has no kernel of its own (a container), `decided_by` names what said which
    one is next: grub, link (/vmlinuz) or newest. `secure_boot` is None where there is no UEFI. `key_enrolled` says
    whether the key that DKMS signs with is one that the firmware accepts. `blacklist_written` is the time of the
    oldest file that keeps nouveau out. `compiler` is gcc's major version on the node, `build_tools` are those of gcc,
    make and dkms that are there. `running_base` is the running kernel's, as Kernel's `base`.
    `started`: when this boot began, in Unix seconds.
    """

    running: str
    next_release: str | None = None
    decided_by: str | None = None
    kernels: tuple[Kernel, ...] = ()
    dkms: tuple[DkmsBuild, ...] = ()
    secure_boot: bool | None = None
    key_enrolled: bool = False
    blacklist_written: float | None = None
    compiler: str | None = None
    build_tools: tuple[str, ...] = ()
    running_base: str | None = None
    started: float | None = None

    @property
    def next_kernel(self) -> Kernel | None:
        """Return the kernel that boots next; None where the node has none, or none that is there."""
        return next((kernel for kernel in self.kernels if kernel.release == self.next_release), None)

    @property
    def bases(self) -> tuple[str, ...]:
        """Return the packages of the installed kernels, as Arch calls them; the next one's is first.

        Where no kernel is known it is the running one's.
        """
        first = self.next_kernel.base if self.next_kernel else self.running_base
        return tuple(dict.fromkeys(base for base in (first, *(kernel.base for kernel in self.kernels)) if base))

    @property
    def with_nouveau(self) -> tuple[str, ...]:
        """Return the kernels whose initial file systems would load nouveau."""
        return tuple(kernel.release for kernel in self.kernels if kernel.initramfs_nouveau)

    @property
    def images(self) -> list[str]:
        """Return "RELEASE TIME" of each initial file system that is there and could be read."""
        return [
            f"{kernel.release} {kernel.initramfs_written:.0f}"
            for kernel in self.kernels
            if kernel.initramfs_written is not None and kernel.initramfs_nouveau is not None
        ]

    @property
    def new_images(self) -> str:
        """Return the digest of what new initial file systems are to be; a newer image or blacklist is a new try."""
        releases = set(self.with_nouveau)
        written = (line for line in self.images if line.split(" ")[0] in releases)
        return target_digest(*written, str(self.blacklist_written))

    def dkms_state(self, module: str, release: str) -> str | None:
        """Return how far DKMS is with a module (its name begins so) for a kernel: installed, built, added or None."""
        states = [build.state for build in self.dkms if build.module.startswith(module) and build.kernel == release]
        states += [build.state for build in self.dkms if build.module.startswith(module) and build.kernel is None]
        return next((state for state in ("installed", "built", "added") if state in states), None)


def _release_key(release: str) -> tuple[Version, str]:
    """Order kernel releases as a boot loader does: 6.1.0-9-amd64 before 6.1.0-40-amd64."""
    numbers = re.split(r"[^0-9]+", re.split(r"[^0-9.+~_-]", release)[0])
    try:
        return Version(".".join(number for number in numbers if number) or "0"), release
    except InvalidVersion:
        return Version("0"), release


@dataclass(frozen=True)
class _Entry:
    """Hold an entry of GRUB's menu: per level, from the outermost, what it goes by (place, title, id); its kernel."""

    levels: tuple[frozenset[str], ...]
    release: str

    def is_named(self, parts: list[str]) -> bool:
        """Say whether a default names this entry, or a submenu that it stands in."""
        return len(parts) <= len(self.levels) and all(
            part in level for part, level in zip(parts, self.levels, strict=False)
        )


def _entries(lines: list[str]) -> list[_Entry]:
    """Return the entries that boot a Linux kernel, from grub.cfg's lines of menus, entries, kernels and braces."""
    found: list[_Entry] = []
    # What the open menus and entries go by, and how many entries each open menu has had.
    open_menus: list[frozenset[str]] = []
    counts = [0]
    for raw in lines:
        line = raw.strip()
        if line.startswith(("menuentry ", "submenu ")):
            try:
                words = shlex.split(line.rstrip("{ "))
            except ValueError:
                words = line.split()
            names = {str(counts[-1]), *words[1:2]}
            for option in ("$menuentry_id_option", "--id"):
                if option in words[:-1]:
                    names.add(words[words.index(option) + 1])
            counts[-1] += 1
            open_menus.append(frozenset(names))
            counts.append(0)
        elif line == "}" and open_menus:
            open_menus.pop()
            counts.pop()
        elif open_menus and (match := re.match(r"linux(?:16|efi)?\s+\S*vmlinuz-(\S+)", line)):
            found.append(_Entry(tuple(open_menus), match[1]))
    return found


def grub_next(config: str, environment: str) -> str | None:
    """Return the kernel release that GRUB boots next, from grub.cfg and `grub-editenv list`; None without an entry.

    `next_entry` counts once and first, then the default: a number, a title or an id, `>` between a submenu and what is
    in it, or `saved_entry`. A name is looked for at the top level only, and where there is none of that name GRUB takes
    the first entry: so does this.
    """
    entries = _entries(config.splitlines())
    saved = dict(line.partition("=")[::2] for line in environment.splitlines())
    default = "0"
    for match in re.finditer(r"^\s*set default=[\"']?([^\"'\n]*)[\"']?\s*$", config, re.MULTILINE):
        # The first is the value of next_entry, a variable; the last of the plain ones is the default.
        value = match[1].strip()
        if value == "${saved_entry}":
            default = saved.get("saved_entry") or "0"
        elif not value.startswith("${"):
            default = value
    desired = (saved.get("next_entry") or default).split(">")
    if not entries:
        return None
    return next((entry for entry in entries if entry.is_named(desired)), entries[0]).release


def _next(found: dict[str, str], kernels: Sequence[Kernel]) -> tuple[str | None, str | None]:
    releases = [kernel.release for kernel in kernels]
    config = decoded(found, "grub")
    if config is not None:
        release = grub_next(config, decoded(found, "grubenv") or "")
        # Arch's kernels lie in /boot under the name of their package.
        release = next((kernel.release for kernel in kernels if release and kernel.base == release), release)
        if release in releases:
            return release, "grub"
    linked = found.get("link", "").rpartition("vmlinuz-")[2]
    if linked in releases:
        return linked, "link"
    # There a loader that was not read boots the kind that runs, not the one with the highest number.
    alike = [each.release for each in kernels if each.base and _kind(each.release) == _kind(found["running"])]
    return (max(alike or releases, key=_release_key), "newest") if releases else (None, None)


def _kind(release: str) -> str:
    """Return what tells kernels of one release line from another: 6.12.48-1-lts and 6.12.50-2-lts are of a kind."""
    return re.sub(r"[^a-z]", "", release)


def _kernel(line: str) -> Kernel:
    words = line.split(" ")
    fields = dict(word.partition("=")[::2] for word in words[1:])
    return Kernel(
        release=words[0],
        headers=fields.get("headers") == "yes",
        module_version=fields.get("module") or None,
        module_signer=(fields.get("signer") or "").replace("_", " ") or None,
        initramfs_written=timestamp(fields["initramfs"]) if fields.get("initramfs") else None,
        initramfs_nouveau={"yes": True, "unknown": None}.get(fields.get("nouveau", ""), False),
        initramfs_read=fields.get("nouveau") in ("yes", "no"),
        compiler=fields.get("gcc") or None,
        base=fields.get("base") or None,
    )


def _dkms(line: str) -> DkmsBuild:
    words = line.split(" ")
    if len(words) != 4 or words[3] not in ("added", "built", "installed"):
        raise ParseError(f"not a DKMS module: {line[:80]!r}")
    return DkmsBuild(words[0], words[1], None if words[2] == "-" else words[2], words[3])


def parse_boot(lines: list[str]) -> Boot:
    """Parse the boot probe's lines (gpunode/system/boot.sh)."""
    found = values(lines)
    if "running" not in found:
        raise ParseError("the node did not say which kernel runs")
    kernels = tuple(_kernel(line) for line in repeated(lines, "kernel"))
    release, decided_by = _next(found, kernels)
    return Boot(
        running=found["running"],
        next_release=release,
        decided_by=decided_by,
        kernels=kernels,
        dkms=tuple(_dkms(line) for line in repeated(lines, "dkms")),
        secure_boot={"1": True, "0": False}.get(found.get("secure_boot", "")),
        key_enrolled=found.get("key_enrolled") == "yes",
        blacklist_written=timestamp(found["blacklist"]) if "blacklist" in found else None,
        compiler=found.get("gcc"),
        build_tools=tuple(repeated(lines, "tool")),
        running_base=found.get("base"),
        started=timestamp(found["started"]) if found.get("started", "").isdecimal() else None,
    )
