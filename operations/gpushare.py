"""gpushare: kube-scheduler with its extender, as one transaction, and kubectl's plugin on the machine of gpunode.

The kubelet reads the scheduler's manifest and starts it again at a time that it does not report. Each configuration has
a path of its own, and the command line shows which one runs. Where the new scheduler does not run or is not healthy,
the old manifest comes back, and the old scheduler is waited for.
"""

from __future__ import annotations

import hashlib
import os
import urllib.request
from collections.abc import Iterator, Mapping
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pyinfra import host
from pyinfra.api import FunctionCommand, Host, State

from gpunode.base.decision import target_digest
from gpunode.base.shell_file import script_file
from gpunode.facts.cluster import Scheduler
from gpunode.kubernetes.gpushare.configuration import FOLDER, Extender
from gpunode.kubernetes.gpushare.decide import DesiredScheduler, decide
from gpunode.operations.failure import OperationRefused, failed, node_operation, read_fact
from gpunode.operations.keeping import digest_as_read, digest_of_text
from gpunode.operations.script import encoded
from gpunode.operations.shared_once import once_per_run
from gpunode.operations.transaction import Transaction, refuse_failed, settled, transaction_command
from gpunode.settings.device_plugin import GpushareSettings
from gpunode.settings.repositories import ProxySettings

_CHANGE = Transaction("scheduler", script_file("scheduler"))


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
    state = read_fact(Scheduler, "the scheduler", manifest=manifest)
    decision = decide(DesiredScheduler(extender, manifest, version), state)
    if decision.refusal is not None:
        raise OperationRefused(f"nothing was changed on this host: {decision.refusal}")
    change = next((step.change for step in decision.steps), None)
    if change is None:
        said = f"the scheduler {decision.findings[0].actual}"
        host.noop("there is no scheduler here" if state.manifest is None else said)
        return
    path, text = (change.configuration.path, change.configuration.text) if change.configuration else ("", "")
    target = target_digest(change.manifest, text)
    refuse_failed(_CHANGE, target)
    yield transaction_command(
        _CHANGE,
        target,
        manifest=manifest,
        own=FOLDER,
        path=path,
        option=f"--config={path}" if path else "",
        text=encoded(text),
        written=encoded(change.manifest),
        manifest_read=digest_of_text(state.manifest),
        path_read=digest_as_read(state.configurations.get(path)),
        health=change.health,
        timeout=str(timeout),
        proc="/proc",
        logs="/var/log/pods",
    )


_LONGEST = 256 * 1024 * 1024
_SECONDS = 120


@node_operation
@once_per_run("kubectl-inspect-gpushare")
def inspect_plugin(desired: GpushareSettings, proxy: ProxySettings) -> Iterator[Any]:
    """Keep the kubectl plugin of the asked digest on this machine; where no address is given, nothing is done."""
    if desired.inspect_url is None or desired.inspect_sha256 is None:
        host.noop("no kubectl-inspect-gpushare is asked for")
        return
    path = Path(desired.inspect_path)
    try:
        actual = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None
    except OSError as error:
        raise OperationRefused(f"gpushare.inspect_path: {path}: {error.strerror}; nothing was changed") from None
    if actual == desired.inspect_sha256 and os.access(path, os.X_OK):
        host.noop(f"{path} as desired")
        return
    yield FunctionCommand(_fetched, [desired.inspect_url, desired.inspect_sha256, path, dict(proxy.environment)], {})


def _fetched(state: State, host: Host, url: str, digest: str, path: Path, proxies: dict[str, str]) -> bool:
    """Fetch the program, check it, and put it in its place at once or not at all."""
    beside = path.with_name(f".{path.name}.gpunode-new")
    try:
        with urllib.request.build_opener(_proxies(url, proxies)).open(url, timeout=_SECONDS) as answer:
            content = answer.read(_LONGEST)
        found = hashlib.sha256(content).hexdigest()
        if found != digest:
            return failed(host, f"{url}: its SHA-256 is {found}, and gpushare.inspect_sha256 another; not put")
        path.parent.mkdir(parents=True, exist_ok=True)
        beside.write_bytes(content)
        beside.chmod(0o755)
        beside.replace(path)
    # The last is of a name that none can have: http://a..b
    except (OSError, HTTPException, UnicodeError) as error:
        beside.unlink(missing_ok=True)
        # What such a server said is all of its text.
        said = repr(error) if isinstance(error, HTTPException) else str(error)
        remedy = "look at gpushare.inspect_url and gpushare.inspect_path (may you write there?)"
        return failed(host, f"kubectl-inspect-gpushare: {said}. Remedy: {remedy}")
    return True


def _proxies(url: str, proxies: Mapping[str, str]) -> urllib.request.ProxyHandler:
    """Return the proxies that an address is fetched by; where the settings name none, those of this machine."""
    if not proxies:
        return urllib.request.ProxyHandler()
    by = {name.removesuffix("_proxy"): value for name, value in proxies.items()}
    # The handler itself looks for no_proxy in this machine's environment alone.
    direct = urllib.request.proxy_bypass_environment(urlsplit(url).netloc, by)  # type: ignore[attr-defined]
    return urllib.request.ProxyHandler({} if direct else by)
