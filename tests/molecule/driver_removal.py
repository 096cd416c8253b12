"""A driver that is taken away again: what of it waits, what goes, what stays, and that another may come.

What the scenarios share of it. The node is compared with itself before it had a driver: packages, every file outside
the package managers' own state, and what the files of /etc hold.
"""

from __future__ import annotations

from collections.abc import Collection

from gpunode.lab import nodes as lab_nodes
from gpunode.lab.nodes import Node
from tests.molecule.conftest import out
from tests.molecule.driver_alone import LOADED, Driver

_PACKAGES = {
    "apt": "dpkg-query -W -f '${db:Status-Abbrev} ${Package} ${Version}\\n'; apt-mark showhold",
    "dnf": "rpm -qa",
    "dnf5": "rpm -qa; cat /etc/dnf/versionlock.toml 2>/dev/null",
    "zypper": "rpm -qa; cat /etc/zypp/locks 2>/dev/null",
    "pacman": "pacman -Q; pacman-conf IgnorePkg",
}
# What a package manager and systemd keep for themselves, gpunode's own records, and what any run leaves.
_OWN = (
    "/proc /sys /run /dev /tmp /srv /root /home /var/log /var/cache /var/lib/gpunode /var/lib/dpkg /var/lib/rpm "
    "/var/lib/pacman /var/lib/dnf /usr/lib/sysimage/libdnf5 /var/lib/zypp /var/lib/apt /var/lib/systemd "
    "/var/lib/private /var/lib/YaST2 "
    # Debian keeps copies of what dpkg knows there, by a timer at midnight.
    "/var/backups"
)
_FILES = (
    "set --; for each in " + _OWN + '; do set -- "$@" -path "$each" -prune -o; done; '
    "find / -xdev \"$@\" ! -type d -printf '%p -> %l\\n'; find /etc -type f ! -name ld.so.cache -exec sha256sum {} +"
)
# A process that has a GPU's device open, for which the lab's own module would have to be real.
_USES = (
    "mount --bind /dev/null /dev/nvidia0 && systemd-run --quiet --unit=uses-gpu sh -c "
    "'exec 3< /dev/nvidia0; exec sleep 600' && sleep 1"
)


def has(node: Node) -> set[str]:
    """Return what is on the node, a line each."""
    return set(out(node, f"{{ {_PACKAGES[node.family]}; }} 2>/dev/null; {_FILES}").splitlines())


def comes_and_goes(node: Node, driver: Driver, asked: dict[str, object], stays: Collection[str] = ()) -> None:
    """Install a driver on a fresh node, take it away, and install it again; of it `stays` alone is left in between."""
    bare = has(node)
    first = driver.run(node, **asked)
    assert first.code == 0, first.printed
    installed, loaded = has(node), out(node, LOADED)
    assert installed - bare

    waits = driver.run(node, source="absent")
    assert waits.code == 0, waits.printed
    assert "reboot pending: installed by is" in waits.stderr
    assert (has(node), out(node, LOADED)) == (installed, loaded)

    out(node, _USES)
    gone = driver.run(node, source="absent", allow="reboot")
    assert gone.code == 0, gone.printed
    assert "a new boot" in gone.stderr
    assert lab_nodes.run(node, LOADED).returncode != 0
    left = {line for line in has(node) ^ bare if not any(word in line for word in stays)}
    assert left == set(), sorted(left)
    again = driver.run(node, source="absent", allow="reboot")
    assert (again.code, again.operations("success")) == (0, {}), again.printed
    assert driver.drift(node, source="absent").code == 0

    back = driver.run(node, **asked)
    assert back.code == 0, back.printed
    assert out(node, LOADED) == loaded
    assert driver.drift(node, **asked).code == 0
    # Nothing is in use now: there is nothing to boot for.
    gone = driver.run(node, source="absent", allow="reboot")
    assert gone.code == 0, gone.printed
    assert "a new boot" not in gone.stderr
    assert lab_nodes.run(node, LOADED).returncode != 0
