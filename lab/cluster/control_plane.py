"""The control plane: etcd, API server, controller manager and scheduler as processes of this machine, on loopback.

etcd listens on a socket in the cluster's folder, the controller manager and the scheduler on nothing: one free port is
the cluster's, so that several labs may have one at the same time.
"""

from __future__ import annotations

import base64
import os
import secrets
import time
from collections.abc import Callable
from pathlib import Path

import yaml

from gpunode.lab import access, processes
from gpunode.lab.cluster import client_certificate
from gpunode.lab.cluster.kubectl import ready
from gpunode.lab.cluster.ports import ADDRESS, port
from gpunode.lab.cluster.programs import NAMES
from gpunode.lab.errors import LabError
from gpunode.lab.state import removal

Report = Callable[[str], None]

# By which kubelets know the API server that asks them for a container's words.
CLIENT_CERTIFICATE = "kubelet-client.crt"
_CLIENT_KEY = "kubelet-client.key"
_SOCKET = "unix://etcd.sock:0"
_TOKENS, _ACCOUNTS = "tokens.csv", "service-accounts.key"
_READY_SECONDS = 120.0
_FIRST, _THEN = NAMES[:2], NAMES[2:]
# What would give nodes networks, and what asks a cloud.
_CONTROLLERS = "*,-nodeipam,-cloud-node-lifecycle,-route,-service"
# What would take fake nodes for dead.
_OF_REAL_KUBELETS = "nodelifecycle"
_ADMINISTRATOR, _KUBELET = ("admin", "system:masters"), ("kubelet", "system:nodes")


def start(
    folder: Path, programs: Path, kubeconfig: Path, report: Report, *, real_kubelets: bool = False,
    rights: bool = False,
) -> None:  # fmt: skip
    """Start what of it does not run, and return once the API server is ready; raise LabError.

    + folder: for its state, which root alone reads; every program runs in it
    + kubeconfig: file to write, 0600
    + real_kubelets: whether nodes say themselves that they are alive
    + rights: whether users may do only what roles give them (RBAC), and not everything
    """
    if all(processes.runs(folder, name) for name in NAMES) and ready(kubeconfig):
        report("cluster: is up already, kept")
        return
    started = time.monotonic()
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    token, listening = _tokens(folder)[_ADMINISTRATOR[0]], port(folder, "kube-apiserver")
    access.rsa_key(folder / _ACCOUNTS)
    client_certificate.make(folder / CLIENT_CERTIFICATE, folder / _CLIENT_KEY)
    for name, words in zip(_FIRST, (_etcd(), _api_server(listening, rights)), strict=True):
        processes.start(folder, name, [str(programs / name), *words])
    certificate = _wait_for(folder / "certificates" / "apiserver.crt", folder)
    _write_kubeconfig(kubeconfig, listening, token, certificate)
    _wait_until_ready(folder, kubeconfig, report)
    # Not before: the controller manager ends where it has no API server within ten seconds.
    shared = ["--kubeconfig", str(kubeconfig), "--leader-elect=false", "--secure-port=0", "--port=0"]
    for name, words in zip(_THEN, (_controller_manager(real_kubelets), []), strict=True):
        processes.start(folder, name, [str(programs / name), *shared, *words])
    took = time.monotonic() - started
    report(f"cluster: API server ready at https://{ADDRESS}:{listening}, {took:.0f} s")


def stop(folder: Path) -> bool:
    """End it, and return whether anything of it ran."""
    return any([processes.stop(folder, name) for name in reversed(NAMES)])


def _etcd() -> list[str]:
    # A cluster of one, which never speaks to its own name.
    peer = "http://127.0.0.1:2380"
    return [
        *("--data-dir", "etcd", "--logger", "zap", "--log-level", "warn"),
        *("--listen-client-urls", _SOCKET, "--advertise-client-urls", _SOCKET),
        *("--listen-peer-urls", "unix://etcd-peer.sock:0"),
        *("--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}"),
    ]


def _api_server(listening: int, rights: bool) -> list[str]:
    return [
        *(("--authorization-mode=RBAC",) if rights else ()),
        f"--etcd-servers={_SOCKET}",
        f"--bind-address={ADDRESS}",
        f"--secure-port={listening}",
        "--insecure-port=0",
        "--cert-dir=certificates",
        f"--token-auth-file={_TOKENS}",
        "--anonymous-auth=false",
        # No pod looks for the service `kubernetes`, and an address of loopback would be refused there.
        "--endpoint-reconciler-type=none",
        "--advertise-address=192.0.2.1",
        "--service-cluster-ip-range=10.96.0.0/16",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-signing-key-file={_ACCOUNTS}",
        f"--service-account-key-file={_ACCOUNTS}",
        "--allow-privileged=true",
        "--disable-admission-plugins=ServiceAccount",
        # Where a node's kubelet is simulated, its stand-in is on this machine; a real one is at the node's own address.
        "--kubelet-preferred-address-types=ExternalIP,InternalIP",
        f"--kubelet-client-certificate={CLIENT_CERTIFICATE}",
        f"--kubelet-client-key={_CLIENT_KEY}",
        "--profiling=false",
    ]


def _controller_manager(real_kubelets: bool) -> list[str]:
    controllers = _CONTROLLERS if real_kubelets else f"{_CONTROLLERS},-{_OF_REAL_KUBELETS}"
    return [f"--controllers={controllers}", f"--service-account-private-key-file={_ACCOUNTS}"]


def kubelet_token(folder: Path) -> str:
    """Return the token of all kubelets; raise LabError where the cluster is none of those that have one."""
    token = _tokens(folder).get(_KUBELET[0])
    if token is None:
        raise LabError(f"the lab's cluster is of an older gpunode: {removal(folder)}, and begin anew")
    return token


def _tokens(folder: Path) -> dict[str, str]:
    """Return user -> token, made if they are absent; never a word of a command line."""
    path = folder / _TOKENS
    if not path.exists():
        users = (_ADMINISTRATOR, _KUBELET)
        _write_secret(path, "".join(f'{secrets.token_hex(24)},{name},{name},"{group}"\n' for name, group in users))
    rows = (line.split(",") for line in path.read_text(encoding="utf-8").splitlines())
    return {name: token for token, name, *_ in rows}


def _write_kubeconfig(path: Path, listening: int, token: str, certificate: str) -> None:
    trusted = base64.b64encode(certificate.encode()).decode()
    cluster = {"server": f"https://{ADDRESS}:{listening}", "certificate-authority-data": trusted}
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "lab", "cluster": cluster}],
        "users": [{"name": "admin", "user": {"token": token}}],
        "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "admin"}}],
        "current-context": "lab",
    }
    _write_secret(path, yaml.safe_dump(content, sort_keys=False))
    access.hand_over(path)


def _write_secret(path: Path, text: str) -> None:
    fresh = path.with_name(f".{path.name}")
    fresh.unlink(missing_ok=True)
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
    fresh.replace(path)


def _wait_for(path: Path, folder: Path) -> str:
    """Return the text of the certificate that the API server makes for itself when it starts first."""
    deadline = time.monotonic() + _READY_SECONDS
    while time.monotonic() < deadline and processes.runs(folder, "kube-apiserver"):
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        if text.endswith("-----END CERTIFICATE-----\n"):
            return text
        time.sleep(0.1)
    raise LabError(f"the API server makes no certificate: {processes.last_words(folder, 'kube-apiserver')}")


def _wait_until_ready(folder: Path, kubeconfig: Path, report: Report) -> None:
    started = last = time.monotonic()
    while time.monotonic() - started < _READY_SECONDS:
        for name in _FIRST:
            if not processes.runs(folder, name):
                raise LabError(f"the cluster does not start: {processes.last_words(folder, name)}")
        if ready(kubeconfig):
            return
        if time.monotonic() - last >= 5:
            last = time.monotonic()
            report(f"cluster: waiting for the API server; {last - started:.0f} s")
        time.sleep(0.2)
    said = processes.last_words(folder, "kube-apiserver")
    raise LabError(f"the cluster did not become ready within {_READY_SECONDS:.0f} seconds: {said}")
