"""Helpers and data for the tests of helm session."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime

import yaml

from gpunode.kubernetes.helm.commands import Command
from gpunode.kubernetes.helm.session import Output
from tests.support.helm import MANIFEST

ANSWERS = {
    "version": '{"clientVersion": {}, "serverVersion": {"gitVersion": "v1.31.4-gke.100"}}',
    "api-versions": "apps/v1\nv1\n",
}


@dataclass
class SimulatedHelm:
    """Answer by the revisions that a test made up: status, words, manifest; the first is number 1."""

    revisions: list[tuple[str, str, str]]
    by_hand: tuple[str, str] = ("", "")
    emptied: bool = False
    version: str = "0.20.0"
    fails: dict[str, str] = field(default_factory=dict)
    told: list[str] = field(default_factory=list)
    stdin: list[str | None] = field(default_factory=list)

    def __call__(self, command: Command) -> Output:
        """Answer one command."""
        if command.words[0] == "kubectl":
            return self._kubectl(command)
        verb = command.words[1]
        self.told.append(verb if verb != "rollback" else f"rollback {command.words[3]}")
        self.stdin.append(command.stdin)
        if verb in self.fails:
            return Output(1, "", self.fails[verb])
        return Output(0, getattr(self, f"_{verb}")(command), "")

    def _kubectl(self, command: Command) -> Output:
        verb = next(word for word in command.words if word in (*ANSWERS, "get"))
        self.told.append(f"kubectl {verb}")
        if verb != "get":
            return Output(0, ANSWERS[verb], "")
        items = [each for each in yaml.safe_load_all((command.stdin or "").replace(*self.by_hand)) if each]
        # kubectl prints one object as it is, and none as nothing.
        answer = {"apiVersion": "v1", "kind": "List", "items": items} if len(items) != 1 else items[0]
        return Output(0, json.dumps(answer) if items and not self.emptied else "", "")

    def _list(self, command: Command) -> str:
        newest = {"name": "nvdp", "namespace": "gpu", "status": "deployed"}
        return json.dumps([newest] if self.revisions else [])

    def _history(self, command: Command) -> str:
        updated = datetime(2026, 11, 21, tzinfo=UTC).isoformat()
        chart = "nvidia-device-plugin-0.20.0"
        found = [
            {"revision": number, "status": status, "description": words, "chart": chart, "updated": updated}
            for number, (status, words, _) in enumerate(self.revisions, 1)
        ]
        return json.dumps(found)

    def _get(self, command: Command) -> str:
        number = int(command.words[command.words.index("--revision") + 1])
        return self.revisions[number - 1][2]

    def _template(self, command: Command) -> str:
        return MANIFEST

    def _show(self, command: Command) -> str:
        if command.words[2] == "values":
            return "tolerations: []\n"
        subchart = "dependencies: [{name: node-feature-discovery, alias: nfd}]"
        return f"name: nvidia-device-plugin\nversion: {self.version}\n{subchart}\n"

    def _upgrade(self, command: Command) -> str:
        return ""

    _rollback = _uninstall = _upgrade
