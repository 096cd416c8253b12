"""A node's programs, SIMULATED: apt, dpkg, modinfo, modprobe and nvidia-smi that keep what they did in files.

So the text of a transaction on the driver's packages runs for real under sh, without a node, in a folder of its own.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

from gpunode.base.shell_file import script_file
from gpunode.operations.driver_transaction import DRIVER
from gpunode.operations.script import script
from gpunode.operations.transaction import Transaction, transaction_text

# `packages`: NAME VERSION WANT STATUS; `repository`: NAME VERSION; `manual`: NAME; `along`: NAME, and which package it
# came along for. `no-module`: none is built.
_PROGRAMS = {
    "dpkg-query": r"""
shift; [ "$1" = -f ] && format=$2; shift 2
[ $# -eq 0 ] || grep -q "^$1 " "$STATE/packages" || exit 1
awk -v format="$format" -v only="${1:-}" '!only || $1 == only {
  text = format; gsub(/\$\{Package\}/, $1, text); gsub(/\$\{Version\}/, $2, text)
  gsub(/\$\{db:Status-Want\}/, $3, text); gsub(/\$\{db:Status-Status\}/, $4, text)
  gsub(/\\n/, "\n", text); printf "%s", text}' "$STATE/packages"
""",
    "apt-mark": r"""
action=$1; shift
for name in "$@"; do case "$action" in
  hold) sed -i "s/^\($name [^ ]*\) [a-z]*/\1 hold/" "$STATE/packages";;
  unhold) sed -i "s/^\($name [^ ]*\) [a-z]*/\1 install/" "$STATE/packages";;
  manual) echo "$name" >> "$STATE/manual";;
  auto) sed -i "/^$name\$/d" "$STATE/manual";;
esac; done
[ "$action" != showmanual ] || cat "$STATE/manual"
""",
    "apt-get": r"""
set_version() { sed -i "/^$1 /d" "$STATE/packages"; echo "$1 $2 install installed" >> "$STATE/packages"; }
action=; items=
case "$*" in *autoremove*)
  while read -r name needed_by; do
    if grep -q "^$name " "$STATE/packages" && ! grep -q "^$needed_by " "$STATE/packages"; then echo "Remv $name [1]"; fi
  done < "$STATE/along"; exit;;
esac
for word in "$@"; do case "$word" in
  install|download|remove) action=$word;;
  purge) action=remove;;
  -*) ;;
  */*.deb|*=*|*-) [ -z "$action" ] || items="$items $word";;
  *) [ "$action" != remove ] || items="$items $word-";;
esac; done
[ "$action" != remove ] || rm -f "$STATE/enabled"
for item in $items; do case "$item" in
  *.deb) [ -s "$item" ] || exit 100; set_version $(cat "$item");;
  *=*) grep -qx "${item%%=*} ${item#*=}" "$STATE/repository" || { echo "E: no $item" >&2; exit 100; }
    if [ "$action" = download ]; then echo "${item%%=*} ${item#*=}" > "${item%%=*}_${item#*=}_amd64.deb"
    else set_version "${item%%=*}" "${item#*=}"; fi;;
  *-) sed -i "/^${item%-} /d" "$STATE/packages";;
esac
[ "$action" != download ] && [ -e "$STATE/apt-dies" ] || continue
rm "$STATE/apt-dies"; echo "E: sub-process died" >&2; exit 100
done
""",
    "dpkg": r"""
case "$*" in
  *--purge*) while [ "$1" != --purge ]; do shift; done; shift
    for name in "$@"; do sed -i "/^$name /d" "$STATE/packages"; done;;
  *--install*) exit 1;;
esac
""",
    "dpkg-deb": r"""
case "$1" in -W) printf '%s' "$(cat "$3")";; --fsys-tarfile) [ -s "$2" ];; esac
""",
    "modinfo": r"""
while [ "$1" != -F ]; do shift; done
[ "$3" = nvidia ] && [ ! -e "$STATE/no-module" ] || exit 1
found=$(awk '$1 == "nvidia-open" {sub(/-[0-9]+$/, "", $2); print $2}' "$STATE/packages")
# Where a runfile's installer built one.
[ -n "$found" ] || [ ! -e "$STATE/module" ] || found=$(cat "$STATE/module")
[ -n "$found" ] && echo "$found"
""",
    "rmmod": r"""
[ ! -e "$STATE/in-use" ]
""",
    "modprobe": r"""
case "$*" in
  "-r "*) [ ! -e "$STATE/in-use" ] || { echo "modprobe: FATAL: Module $2 is in use." >&2; exit 1; }
    rm -rf "$ROOT/sys/module/nvidia";;
  nvidia) version=$(modinfo -F version nvidia) || exit 1
    ! grep -qx "$version" "$STATE/does-not-load" 2>/dev/null || { echo "modprobe: ERROR: No such device" >&2; exit 1; }
    [ ! -e "$STATE/modprobe-says" ] || { cat "$STATE/modprobe-says" >&2; exit 1; }
    [ ! -e "$STATE/loads-nothing" ] || exit 0
    mkdir -p "$ROOT/sys/module/nvidia"; echo "$version" > "$ROOT/sys/module/nvidia/version";;
esac
""",
    "nvidia-smi": r"""
exit "$(cat "$STATE/smi" 2>/dev/null || echo 0)"
""",
    "dmesg": "",
    "systemctl": r"""
[ "$2" = --quiet ] || exit 1
case "$1" in
  is-enabled) grep -qx "$3" "$STATE/enabled" 2>/dev/null;;
  enable) echo "$3" >> "$STATE/enabled";;
  disable) sed -i "/^$3\$/d" "$STATE/enabled";;
  *) exit 1;;
esac
""",
    "dkms": "",
    # The change has ended when it flushes the journal's folder for the third time: the power fails just then.
    "sync": r"""
if [ -e "$STATE/cut-before-done" ] && [ "$1" = -f ]; then
  echo >> "$STATE/cut-before-done"
  [ "$(wc -l < "$STATE/cut-before-done")" -lt 3 ] || { rm "$STATE/cut-before-done"; kill -9 "$PPID"; }
fi
""",
}
PLACES = (
    "/sys/module", "/sys/bus/pci", "/var/cache/apt", "/etc/apt", "/usr/bin/nvidia-", "/usr/lib", "/var/log/nvidia-",
    "/etc/modprobe.d", "/proc/cmdline", "/var/lib/dkms",
)  # fmt: skip


class SimulatedDpkg:
    """Hold a node's packages in a folder, and change them by the driver's transaction."""

    def __init__(self, folder: Path, **installed: str) -> None:
        """Make a node with packages at versions (`_` for `-` in names), all held and manual, and their repository."""
        self.state, self.root = folder / "state", folder / "root"
        programs = folder / "bin"
        for path in (self.state, programs, self.root / "var/cache/apt/archives", self.root / "etc/apt"):
            path.mkdir(parents=True)
        for name, text in _PROGRAMS.items():
            (programs / name).write_text(f"#!/bin/sh\n{text}")
            (programs / name).chmod(0o755)
        self.environment = {
            "PATH": f"{programs}:{os.environ['PATH']}", "STATE": str(self.state), "ROOT": str(self.root),
        }  # fmt: skip
        versions = {name.replace("_", "-"): version for name, version in installed.items()}
        self.write("packages", *(f"{name} {version} hold installed" for name, version in versions.items()))
        self.write("manual", *versions)
        self.write("along")
        self.write("repository", *(f"{name} {version}" for name, version in versions.items()))

    def write(self, name: str, *lines: str) -> None:
        """Write a file of the state."""
        (self.state / name).write_text("".join(f"{line}\n" for line in lines))

    def offer(self, *packages: str) -> None:
        """Add `NAME VERSION` to the repository."""
        with (self.state / "repository").open("a") as file:
            file.writelines(f"{package}\n" for package in packages)

    def load(self) -> None:
        """Load the module on disk."""
        subprocess.run(["modprobe", "nvidia"], env=self.environment, check=True)

    def change(
        self, upstream: str, *packages: str, rollback: str = "required", **more: str
    ) -> subprocess.CompletedProcess[str]:
        """Run the driver's transaction for packages `NAME=VERSION`; `NAME-` is to go; `more` are its variables."""
        variables = {
            "arguments": " ".join(packages), "expected": " ".join(item for item in packages if "=" in item),
            "names": " ".join(item.partition("=")[0] for item in packages if "=" in item), "upstream": upstream,
            "pin": "", "kernel": "", "own": "^nvidia-.*$", "foreign": "^$", "rollback": rollback, "holding": "",
            "runfiles": "", "before_version": "", "before_install": "--silent --before", "uninstall": "--silent",
            "before_uninstall": "--silent --leave-before", "installer_log": "/var/log/nvidia-installer.log", **more,
        }  # fmt: skip
        return self.transact(DRIVER, variables)

    def transact(self, transaction: Transaction, variables: dict[str, str]) -> subprocess.CompletedProcess[str]:
        """Run a transaction with its variables, in this node's folders."""
        text = transaction_text(transaction, "target-1", variables)
        text = text.replace("folder=/var/lib/gpunode/transactions", f"folder={self.state}", 1)
        for place in PLACES:
            text = re.sub(rf"(?<![\w./]){re.escape(place)}", f"{self.root}{place}", text)
        path = self.state / "driver.sh"
        path.write_text(script(text))
        return self.run("change")

    def run(self, what: str) -> subprocess.CompletedProcess[str]:
        """Run `change` or `undo` of the transaction's script as it stands."""
        return subprocess.run(
            ["sh", self.state / "driver.sh", what],
            env=self.environment, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip

    def load_next(self, wanted: str) -> subprocess.CompletedProcess[str]:
        """Run what loads the module on disk, as after a boot; systemd-run is SIMULATED."""
        shutil.rmtree(self.root / "sys/module/nvidia", ignore_errors=True)
        program = Path(self.environment["PATH"].partition(":")[0]) / "systemd-run"
        program.write_text('#!/bin/sh\nwhile [ "$1" != /bin/sh ]; do shift; done\nexec "$@"\n')
        program.chmod(0o755)
        text = script_file("nouveau", "driver_load")
        for place in PLACES:
            text = re.sub(rf"(?<![\w./]){re.escape(place)}", f"{self.root}{place}", text)
        words = {"wanted": wanted, "folder": str(self.state), "transaction": "driver"}
        return subprocess.run(
            ["sh", "-c", script(text)],
            env={**self.environment, **words}, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip

    @property
    def journal(self) -> str | None:
        """Return the state in the journal, None where there is none."""
        path = self.state / "driver.json"
        return str(json.loads(path.read_text())["state"]) if path.exists() else None

    @property
    def packages(self) -> dict[str, str]:
        """Return name -> `VERSION WANT` of what is installed."""
        lines = (line.split() for line in (self.state / "packages").read_text().splitlines())
        return {name: f"{version} {want}" for name, version, want, _ in lines}

    @property
    def manual(self) -> set[str]:
        """Return which packages are marked as wanted by a person."""
        return set((self.state / "manual").read_text().split())

    @property
    def loaded(self) -> str | None:
        """Return the version of the loaded module."""
        path = self.root / "sys/module/nvidia/version"
        return path.read_text().strip() if path.exists() else None
