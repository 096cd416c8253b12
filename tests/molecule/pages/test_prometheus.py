"""docs/examples/monitoring on a node: Debian's node_exporter, Prometheus and promtool, and systemd's own judgement.

Real: those programs, the units, the metrics of a real `gpunode drift` over the lab. SIMULATED: the GPUs, and the
gpunode that the service calls, which puts in place what was read from outside: the node has no gpunode of its own.
"""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Iterator
from typing import Any

import pytest

from gpunode.lab import nodes as lab_nodes
from gpunode.lab.nodes import Node
from tests.molecule.conftest import CHECKOUT, LAB, command, out, third_tier

pytestmark = [pytest.mark.node, pytest.mark.real, third_tier]

EXAMPLES = CHECKOUT / "docs" / "examples" / "monitoring"
METRICS = "/var/lib/prometheus/node-exporter/gpunode"
# The page's own steps, but for two: the node gets whole lists of packages, for the lab's are cut down, and no daemon
# starts with former settings.
INSTALL = f"""set -e
printf '#!/bin/sh\\nexit 101\\n' > /usr/sbin/policy-rc.d; chmod 755 /usr/sbin/policy-rc.d
rm -rf /var/lib/apt/lists/*
# A name may not be found for a moment where many labs' networks come and go on one machine.
for again in 1 2 3 4 5 6; do apt-get -q -o APT::Update::Error-Mode=any update && break; sleep 10; done
DEBIAN_FRONTEND=noninteractive apt-get -q -y install --no-install-recommends prometheus prometheus-node-exporter
rm /usr/sbin/policy-rc.d
useradd --system --create-home gpunode
install -d -o gpunode {METRICS}
echo 'ARGS="--collector.textfile.directory={METRICS}"' >> /etc/default/prometheus-node-exporter
mkdir -p /opt/gpunode/.venv/bin
"""
# SIMULATED: `gpunode drift --prometheus FILE INVENTORY`, which found drift.
PROGRAM = """#!/bin/sh
[ "$1 $2 $4" = "drift --prometheus inventories/prod.py" ] || exit 64
cp /srv/gpunode.prom "$3"
exit 2
"""


def write(node: Node, path: str, text: str) -> None:
    out(node, f"cat > {path} <<'END_OF_FILE'\n{text}END_OF_FILE")


def query(node: Node, expression: str) -> list[dict[str, Any]]:
    """Return what Prometheus answers to a query."""
    url = "http://localhost:9090/api/v1/query"
    said = json.loads(out(node, f"curl -s {url} --data-urlencode query={shlex.quote(expression)}"))
    assert said["status"] == "success", said
    result: list[dict[str, Any]] = said["data"]["result"]
    return result


def until(node: Node, expression: str) -> list[dict[str, Any]]:
    """Return the answer to a query as soon as it has one."""
    deadline = time.monotonic() + 60
    while not (found := query(node, expression)):
        assert time.monotonic() < deadline, f"{expression}: no answer"
        time.sleep(0.5)
    return found


def expressions(part: Any) -> Iterator[str]:
    """Yield the queries of a dashboard's panels."""
    for each in part.values() if isinstance(part, dict) else part if isinstance(part, list) else ():
        yield from expressions(each)
    if isinstance(part, dict) and isinstance(part.get("expr"), str):
        yield part["expr"].replace("$node", ".*")


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> tuple[Node, dict[str, Any]]:
    """Return the node with the exporter, Prometheus and the timer, and what drift said, whose metrics it has."""
    node = lab_nodes.nodes(LAB)[0]
    path = tmp_path_factory.mktemp("metrics") / "gpunode.prom"
    run = command("gpunode", "drift", "--json", "--prometheus", str(path), "inventories/lab.py")
    assert run.code in (0, 2), run.printed
    out(node, INSTALL)
    write(node, "/srv/gpunode.prom", path.read_text())
    write(node, "/opt/gpunode/.venv/bin/gpunode", PROGRAM)
    out(node, "chmod 755 /opt/gpunode/.venv/bin/gpunode")
    for name in ("gpunode-drift.service", "gpunode-drift.timer"):
        write(node, f"/etc/systemd/system/{name}", (EXAMPLES / name).read_text())
    write(node, "/etc/prometheus/gpunode-alerts.yml", (EXAMPLES / "alerts.yml").read_text())
    # Nobody waits for what a test could have at once.
    scraped = (EXAMPLES / "prometheus.yml").read_text()
    write(node, "/etc/prometheus/prometheus.yml", scraped.replace("_interval: 15s", "_interval: 1s"))
    return node, run.payload


def test_promtool_and_systemd_find_no_fault_in_what_is_to_be_copied(watched: tuple[Node, Any]) -> None:
    node, _ = watched
    out(
        node, "systemd-analyze verify /etc/systemd/system/gpunode-drift.service /etc/systemd/system/gpunode-drift.timer"
    )
    folder = "/root/monitoring"
    out(node, f"mkdir -p {folder}")
    for name in ("alerts.yml", "alerts.test.yml"):
        write(node, f"{folder}/{name}", (EXAMPLES / name).read_text())
    assert "9 rules found" in out(node, f"promtool check rules {folder}/alerts.yml")
    assert "SUCCESS" in out(node, f"cd {folder} && promtool test rules alerts.test.yml 2>&1")
    assert "SUCCESS" in out(node, "promtool check config /etc/prometheus/prometheus.yml")
    # It prints what it would have otherwise, and nothing where all is as Prometheus' conventions say.
    assert out(node, "promtool check metrics < /srv/gpunode.prom 2>&1") == ""
    # A rule that is spoilt is found: the tests look at something.
    out(node, f"sed -i 's/> 3600/> 360000/' {folder}/alerts.yml")
    spoilt = lab_nodes.run(node, f"cd {folder} && promtool test rules alerts.test.yml")
    assert spoilt.returncode != 0 and "GpunodeDriftCheckStale" in spoilt.stdout + spoilt.stderr


def test_the_timer_s_metrics_come_to_prometheus_and_each_panel_s_query_is_answered(watched: tuple[Node, Any]) -> None:
    node, said = watched
    out(
        node,
        "systemctl daemon-reload; systemctl enable --now gpunode-drift.timer; systemctl start gpunode-drift.service",
    )
    assert out(node, "systemctl show -P Result gpunode-drift.service") == "success"
    assert "gpunode-drift.service" in out(node, "systemctl list-timers --no-pager gpunode-drift.timer")
    assert out(node, f"stat -c '%U %a' {METRICS}/gpunode.prom") == "gpunode 644"
    out(node, "systemctl restart prometheus-node-exporter prometheus")
    deadline = "for _ in $(seq 120); do curl -sf localhost:9090/-/ready && exit 0; sleep 0.5; done; exit 1"
    out(node, deadline)
    info = until(node, "gpunode_node_info")
    assert {each["metric"]["node"] for each in info} == set(said["hosts"])
    assert all(each["metric"]["gpu_model"] and each["metric"]["kernel"] for each in info)
    gpus = {each["metric"]["node"]: int(each["value"][1]) for each in query(node, "gpunode_node_pci_gpus")}
    assert set(gpus) == set(said["hosts"]) and all(gpus.values())
    state = {each["metric"]["node"]: each["metric"]["class"] for each in query(node, "gpunode_node_state == 1")}
    assert state == {name: host["class"] for name, host in said["hosts"].items()}
    panels = list(expressions(json.loads((EXAMPLES / "dashboard.json").read_text())))
    assert len(panels) > 10
    answered = {expression: len(query(node, expression)) for expression in panels}
    # What nobody waits for, and what is not found, has no series.
    empty = {expression for expression, count in answered.items() if not count}
    assert all("waiting_since" in each or "gpunode_node_finding{" in each or 'class!="ok"' in each for each in empty)


def test_an_alert_fires_once_nothing_is_checked_any_more(watched: tuple[Node, Any]) -> None:
    node, _ = watched
    assert query(node, 'ALERTS{alertname="GpunodeDriftCheckStale"}') == []
    checked = "gpunode_drift_checked_timestamp_seconds"
    out(node, f"sed -i 's/^{checked} .*/{checked} 1.7e+09/' {METRICS}/gpunode.prom")
    (alert,) = until(node, 'ALERTS{alertname="GpunodeDriftCheckStale",alertstate="firing"}')
    assert alert["metric"]["severity"] == "warning"
    # The next check puts it right.
    out(node, "systemctl start gpunode-drift.service")
    deadline = time.monotonic() + 60
    while query(node, 'ALERTS{alertname="GpunodeDriftCheckStale"}'):
        assert time.monotonic() < deadline, "the alert stays"
        time.sleep(0.5)
