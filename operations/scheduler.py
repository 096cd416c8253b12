"""kube-scheduler made to ask an extender: its configuration file and its static manifest, as one transaction.

The kubelet reads the manifest and starts the scheduler anew; nobody tells when. What runs is known by its command line,
since each configuration has a path of its own. Where the new one does not run and answer that it is well, the old
manifest comes back, and the old scheduler is waited for.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from typing import Any

from pyinfra import host

from facts.scheduler import Scheduler
from gpunode.gpushare.configuration import FOLDER, Extender, SchedulerError
from gpunode.gpushare.patch import is_untouched
from gpunode.gpushare.state import SchedulerState, wanted
from operations.failure import OperationRefused, known, node_operation
from operations.keeping import digest_as_read, digest_of_text
from operations.transaction import Transaction, refuse_failed, settled, target_digest, transaction_command

# The kubelet reads every file of the manifest's folder but those whose names begin with a dot.
_CHANGE = Transaction(
    name="scheduler",
    shared=r"""
hidden=yes
option_of() {
  tr '\0' '\n' 2>/dev/null < "$proc/$1/cmdline" | grep -x -- "--config=$own/scheduler-[0-9a-f]*.yaml" || true
}
running() {
  for comm in "$proc"/[0-9]*/comm; do
    program=; read -r program 2>/dev/null < "$comm" || continue
    [ "$program" = kube-scheduler ] || continue
    number=${comm%/comm}; number=${number##*/}
    if [ "$1" = any ] || [ "$(option_of "$number")" = "$1" ]; then echo "$number"; fi
  done
}
answers() {
  if command -v curl >/dev/null; then curl -ksf --noproxy '*' --max-time 5 "$health" >/dev/null
  elif command -v wget >/dev/null; then wget -q --no-proxy --no-check-certificate -T 5 -O /dev/null "$health"; fi
}
# By the seconds since the boot: the clock may be set meanwhile.
now() { read -r up _ < "$proc/uptime"; echo "${up%%.*}"; }
well() {
  end=$(($(now) + timeout))
  while [ "$(now)" -lt "$end" ]; do
    found=$(running "$1")
    if [ -n "$found" ] && answers; then
      # One that ends right after it has answered is none that runs.
      sleep 3
      if [ "$(running "$1")" = "$found" ] && answers; then return 0; fi
    fi
    [ "$(systemctl is-system-running || true)" != stopping ] || exit 143
    sleep 1
  done
  return 1
}
words() {
  log=$(ls -t "$logs"/kube-system_kube-scheduler-*/kube-scheduler/*.log 2>/dev/null | head -n 1) || true
  [ -n "$log" ] || return 0
  # Why it ends stands in a line of its own, or in one of the kind F; all else is the log of its work.
  said=$(grep -v '^[IWE][0-9]' "$log" | grep -v '^ *$' | tail -n 1) || true
  [ -n "$said" ] || said=$(tail -n 1 "$log") || true
  printf '%s' "$said" | cut -c 1-400
}
""",
    checkpoint=r"""
keep_file "$manifest" "$manifest_read" || exit 1
[ -z "$path" ] || keep_file "$path" "$path_read" || exit 1
running any > "$checkpoint/processes"
for number in $(cat "$checkpoint/processes"); do option_of "$number"; done | head -n 1 > "$checkpoint/by"
""",
    change=r"""
if [ ! -s "$checkpoint/processes" ]; then
  echo "gpunode: no kube-scheduler runs on this host; nothing was changed; mend that first (crictl ps -a)" >&2; exit 1
fi
if [ -n "$path" ]; then
  printf '%s' "$text" | base64 -d | stage_file "$path" 644
  place_file "$path"
fi
printf '%s' "$written" | base64 -d | stage_file "$manifest" -
place_file "$manifest"
if ! well "$option"; then
  if [ "$(running any)" = "$(cat "$checkpoint/processes")" ]; then
    echo "gpunode: the kubelet did not take the new manifest in $timeout s: the old scheduler runs on. Is $manifest" \
      "in the folder that it reads (staticPodPath), and does it run?" >&2
    exit 1
  fi
  reject "kube-scheduler is not well in $timeout s with the extender: $(words)"
fi
""",
    # A manifest that somebody wrote since then is his, and runs: an upgrade of the cluster must not be taken back. This
    # very run may change it next, so that it is kept besides.
    restore=r"""
if is_somebodys "$manifest"; then
  keep_lost "$manifest" || return 1
  rm -f "$(beside_file "$manifest" new)"
  [ -z "$path" ] || rm -f "$(beside_file "$path" new)"
  echo "gpunode: $manifest is left as it is" >&2
else
  same=''; ! is_as_kept "$manifest" || same=yes
  put_file_back "$manifest" || return 1
  [ -n "$same" ] || well "$(cat "$checkpoint/by")" ||
    echo "gpunode: the old manifest is back, and no scheduler is well by it in $timeout s: look at crictl ps -a" >&2
  [ -z "$path" ] || put_file_back "$path" || return 1
fi
true
""",
    afterwards=r"""
for file in "$own"/scheduler-*.yaml; do [ "$file" = "$path" ] || rm -f "$file"; done
""",
)


@node_operation
def extended(extender: Extender | None, manifest: str, version: str | None, timeout: int) -> Iterator[Any]:
    """Keep this host's scheduler asking an extender, or none of gpunode's.

    Call it on a control-plane host; a host without a manifest has nothing to be taken back from.

    + extender: how it is reached; None: the scheduler runs as if gpunode had never been there
    + manifest: absolute path of the scheduler's static manifest
    + version: the cluster's, where the manifest's image says none
    + timeout: seconds within which the new scheduler has to be well
    """
    yield from settled(_CHANGE)
    state: SchedulerState = known(host.get_fact(Scheduler, manifest=manifest), "the scheduler")
    if state.manifest is None:
        if extender is None:
            host.noop("there is no scheduler here")
            return
        raise OperationRefused(
            f"gpushare: {manifest} is not there: this is no control-plane host whose scheduler is a static pod; set "
            "gpushare.schedulers or gpushare.manifest, or gpushare.scheduler to 'theirs'"
        )
    if extender is None and is_untouched(state.manifest):
        # A cluster that never had gpushare may have a scheduler of any kind.
        host.noop("the scheduler asks no extender of gpunode's")
        return
    try:
        asked = wanted(state.manifest, extender, version)
    except SchedulerError as error:
        raise OperationRefused(f"gpushare: {manifest}: {error}\nnothing was changed on this host") from None
    path, text = (asked.configuration.path, asked.configuration.text) if asked.configuration else ("", "")
    written = not path or state.configurations.get(path) == _sha256(text)
    # The old one runs on for a moment after the manifest has changed; a plain one is told by its manifest alone.
    if asked.manifest == state.manifest and written and (not path or state.runs_by(path)):
        host.noop("the scheduler asks the extender" if path else "the scheduler asks no extender of gpunode's")
        return
    target = target_digest(asked.manifest, text)
    refuse_failed(_CHANGE, target)
    yield transaction_command(
        _CHANGE, target, manifest=manifest, own=FOLDER, path=path, option=f"--config={path}" if path else "",
        text=_base64(text), written=_base64(asked.manifest), manifest_read=digest_of_text(state.manifest),
        path_read=digest_as_read(state.configurations.get(path)), health=asked.health, timeout=str(timeout),
        proc="/proc", logs="/var/log/pods",
    )  # fmt: skip


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
