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
from operations.transaction import Transaction, refuse_failed, settled, target_digest, transaction_command

_CHANGE = Transaction(
    name="containerd",
    shared="""
healthy() {
  # By the clock: ctr itself waits for a daemon that is not there.
  end=$(($(date +%s) + 30)); state=
  while [ "$(date +%s)" -lt "$end" ]; do
    if systemctl is-active --quiet containerd; then
      state=$(timeout -k 2 5 ctr plugins ls 2>/dev/null |
        awk '($1=="io.containerd.grpc.v1"&&$2=="cri")||
          ($1=="io.containerd.cri.v1"&&$2=="runtime"){print $NF}' | sort -u)
      [ "$state" = ok ] && return 0
    fi
    # A machine that goes down takes its daemon with it: that is nobody's fault.
    [ "$(systemctl is-system-running || true)" != stopping ] || exit 143
    sleep 0.5
  done
  service=$(systemctl is-active containerd || true)
  journalctl -u containerd -n 8 --no-pager -o cat >&2 2>/dev/null || true
  return 1
}
""",
    checkpoint="""
mkdir -p "$(dirname "$config")"
if [ -e "$config" ]; then cp -p "$config" "$checkpoint/config.toml"; fi
""",
    change="""
if [ "$write" = yes ]; then
  printf '%s' "$encoded" | base64 -d > "$config.gpunode-new"
  # The file may hold registry credentials: who could not read it before shall not now.
  if [ -e "$config" ]; then chown --reference="$config" "$config.gpunode-new"; fi
  chmod "$(stat -c %a "$config" 2>/dev/null || echo 644)" "$config.gpunode-new"
  sync "$config.gpunode-new"
  "$binary" --config "$config.gpunode-new" config dump > "$checkpoint/merged.toml" ||
    reject "containerd refuses the new configuration"
  mv -f "$config.gpunode-new" "$config"
fi
systemctl daemon-reload
touch "$checkpoint/restarted"
# A daemon that was restarted often of late would be refused a start, whatever the cause that has been mended since.
systemctl reset-failed containerd 2>/dev/null || true
systemctl restart containerd || true
healthy || reject "after 30 s containerd is $service, its CRI plugin '${state:-not answering}'"
""",
    # Whether the daemon may have seen the new file decides on its restart: the old file's time would not show it.
    restore="""
rm -f "$config.gpunode-new"
if [ -e "$checkpoint/config.toml" ]; then
  cp -p "$checkpoint/config.toml" "$config.gpunode-new" && sync "$config.gpunode-new" || return 1
  differs=$(cmp -s "$config.gpunode-new" "$config" || echo yes)
  if [ -n "$differs" ]; then mv -f "$config.gpunode-new" "$config" || return 1; else rm -f "$config.gpunode-new"; fi
else
  differs=$([ ! -e "$config" ] || echo yes); rm -f "$config" || return 1
fi
if [ -n "$differs" ] || [ -e "$checkpoint/restarted" ]; then
  systemctl reset-failed containerd 2>/dev/null
  systemctl restart containerd && healthy && echo "gpunode: containerd runs again as before" >&2 ||
    echo "gpunode: containerd does not come up with the old file either" >&2
fi
""",
)


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
    yield from settled(_CHANGE)
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
    if state.active and state.cri_plugin is None and not (write or state.stale):
        raise OperationRefused(
            "containerd runs, but `ctr plugins ls` does not tell how its CRI plugin is; nothing was changed. Look at "
            "`journalctl -u containerd` and run again"
        )
    sick = state.active and state.cri_plugin != "ok"
    if not (write or state.stale or sick):
        host.noop(f"containerd runs with default runtime {state.default_runtime}")
        return
    if not restart_allowed and state.shims:
        host.noop(f"restart pending: {state.shims} containers run and disruption.allow is nothing")
        host.log("restart pending: containerd's configuration is to change, but disruption.allow is nothing")
        return
    # A restart alone is tried again when any of the files that the daemon reads was written since.
    target = target_digest(text, "" if write else str(state.configured_at))
    refuse_failed(_CHANGE, target)
    yield transaction_command(
        _CHANGE, target,
        config=state.config_path, binary=state.binary or "containerd", write="yes" if write else "no",
        encoded=base64.b64encode(text.encode()).decode(),
    )  # fmt: skip
