"""containerd's configuration, changed as one transaction: proven before the restart, put back if it fails."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

from pyinfra import host
from pyinfra.api import StringCommand

from facts.containerd import Containerd
from gpunode.containerd.editor import ConfigurationRefused, Runtimes, render
from gpunode.containerd.state import Containerd as State
from operations.failure import OperationRefused, known, node_operation
from operations.script import transaction_command

_CHANGE = """
checkpoint=/var/lib/gpunode/transactions/containerd
rm -rf "$checkpoint"; mkdir -p "$checkpoint" "$(dirname "$config")"
if [ -e "$config" ]; then cp -p "$config" "$checkpoint/config.toml"; fi
restarted=no
healthy() {
  tries=0
  while [ "$tries" -lt 60 ]; do
    state=$(timeout -k 2 5 ctr plugins ls 2>/dev/null |
      awk '($1=="io.containerd.grpc.v1"&&$2=="cri")||($1=="io.containerd.cri.v1"&&$2=="runtime"){print $NF}' | sort -u)
    [ "$state" = ok ] && return 0
    tries=$((tries + 1)); sleep 0.5
  done
  service=$(systemctl is-active containerd || true)
  echo "gpunode: after 30 s containerd is $service, its CRI plugin '${state:-not answering}'" >&2
  journalctl -u containerd -n 8 --no-pager -o cat >&2 2>/dev/null || true
  return 1
}
restore() {
  code=$?; trap - EXIT; rm -f "$config.gpunode-new"
  if [ "$code" -ne 0 ]; then
    echo "gpunode: the change of $config failed; putting the old file back" >&2
    if [ -e "$checkpoint/config.toml" ]; then cp -p "$checkpoint/config.toml" "$config"; else rm -f "$config"; fi
    if [ "$restarted" = yes ]; then
      systemctl restart containerd && healthy && echo "gpunode: containerd runs again as before" >&2 ||
        echo "gpunode: containerd does not come up with the old file either" >&2
    fi
  fi
  exit "$code"
}
trap restore EXIT
trap 'exit 143' TERM INT HUP
if [ "$write" = yes ]; then
  printf '%s' "$encoded" | base64 -d > "$config.gpunode-new"
  chmod 644 "$config.gpunode-new"
  "$binary" --config "$config.gpunode-new" config dump > "$checkpoint/merged.toml" || {
    echo "gpunode: containerd refuses the new configuration" >&2; exit 1; }
  mv -f "$config.gpunode-new" "$config"
fi
systemctl daemon-reload
restarted=yes
systemctl restart containerd
healthy
"""


def _shadowed(state: State, asked: Runtimes) -> str | None:
    """Return what the merged configuration says against a root file that is right, None where they agree."""
    if state.default_runtime != asked.default:
        return f"default_runtime_name is {state.default_runtime!r}, not {asked.default!r}"
    for name in ("runc", "nvidia") if asked.nvidia else ("runc",):
        runtime = state.runtime(name)
        if runtime is None:
            return f"there is no runtime {name}"
        if runtime.systemd_cgroup != asked.systemd_cgroup:
            return f"SystemdCgroup of {name} is {runtime.systemd_cgroup}"
    return None


@node_operation
def configuration(default_runtime: str, systemd_cgroup: bool, nvidia: bool, restart_allowed: bool) -> Iterator[Any]:
    """Bring containerd's runtimes to what is asked, and restart it only where what runs is older than what is written.

    + default_runtime: nvidia or runc
    + systemd_cgroup: SystemdCgroup of runc and nvidia
    + nvidia: whether there is a runtime nvidia
    + restart_allowed: if not, a node that runs containers is left as it is, with the restart pending
    """
    state = known(host.get_fact(Containerd), "containerd's state")
    if state.version is None:
        if host.state is not None and host.state.is_executing:
            raise OperationRefused("containerd is not installed; set containerd.source or install it")
        yield StringCommand("true")  # a forecast: the package comes with an operation before this one
        return
    asked = Runtimes(default=default_runtime, systemd_cgroup=systemd_cgroup, nvidia=nvidia)
    try:
        text = render(state.config_text, state.version, asked)
    except ConfigurationRefused as refusal:
        raise OperationRefused(f"{state.config_path}: {refusal}") from refusal
    write = text != state.config_text
    if not write and (reason := _shadowed(state, asked)):
        raise OperationRefused(
            f"{state.config_path} is right, but the merged configuration is not: {reason}; a drop-in in its `imports` "
            "shadows the file. Mend or remove that drop-in, then run again"
        )
    sick = state.active and state.cri_plugin != "ok"
    if not (write or state.stale or sick):
        host.noop(f"containerd runs with default runtime {state.default_runtime}")
        return
    if not restart_allowed and state.shims:
        host.noop(f"restart pending: {state.shims} containers run and disruption.allow is nothing")
        host.log("restart pending: containerd's configuration is to change, but disruption.allow is nothing")
        return
    yield transaction_command(
        "containerd", _CHANGE,
        config=state.config_path, binary=state.binary or "containerd", write="yes" if write else "no",
        encoded=base64.b64encode(text.encode()).decode(),
    )  # fmt: skip
