"""What several tests share with unit/test_other_plugins.py."""

from __future__ import annotations

CHART = {
    "chart": "fpga-plugin",
    "repository": "https://charts.example/fpga",
    "version": "1.2.3",
    "namespace": "fpga",
    "values": {"tolerations": []},
}
