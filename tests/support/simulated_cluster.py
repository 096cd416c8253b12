"""SIMULATED: helm and kubectl as one program over one JSON file, which changes at once and for good.

It knows what gpunode asks, and nothing else. What the real ones do is shown by tests/molecule/cluster.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# What Pod Security is to enforce where pods mount folders of the node.
ENFORCED = ("pod-security.kubernetes.io/enforce", "privileged")
_NAMESPACES = ("nvidia-device-plugin", "gpu-operator", "fpga", "dcgm-exporter")
# Started hundreds of times: without the site's packages and with few modules, it does so in half the time.
_SCRIPT = """#!{python} -IS
import fcntl, json, os, sys
lock = open({file!r} + ".lock", "w")
fcntl.flock(lock, fcntl.LOCK_EX)
with open({file!r}) as file:
    state = json.load(file)
program, words = os.path.basename(sys.argv[0]), sys.argv[1:]
if words[0] in ("--context", "--kube-context"):
    words = words[2:]
printed = None

# Namespace -> where its release stands in the file, the release, its chart and version; else the device plugin's.
RELEASES = {{
    "gpu-operator": ("operator", "operator_live", "gpu-operator", "gpu-operator", "v25.3.4"),
    "fpga": ("other", "other_live", "fpga", "fpga-plugin", "1.2.3"),
    "dcgm-exporter": ("exporter", "exporter_live", "dcgm-exporter", "dcgm-exporter", "4.8.2"),
}}

def options(name):
    return words[words.index(name) + 1]

def name_of(document):
    return document["kind"].lower() + "/" + document["metadata"]["name"]

def with_manager(node):
    version = {{"resourceVersion": "1", "managedFields": [
        {{"manager": "gpunode", "fieldsV1": {{"f:spec": {{"f:unschedulable": {{}}}}}}}}
    ]}}
    return {{**node, "metadata": {{**node["metadata"], **version}}}}

def plugin_objects():
    items = []
    for name in ("nvdp", "nvdp-mps-control-daemon"):
        number = str(state["generation"])
        notes = {{"meta.helm.sh/release-name": "nvdp", "deprecated.daemonset.template.generation": number}}
        spec = {{"updateStrategy": {{"type": "OnDelete"}}}}
        items.append({{"kind": "DaemonSet", "metadata": {{"name": name, "annotations": notes}}, "spec": spec}})
    for name, each in state["plugin_pods"].items():
        ready = "True" if each["ready"] else "False"
        items.append({{
            "kind": "Pod",
            "metadata": {{
                "name": name, "labels": {{"pod-template-generation": str(each["generation"])}},
                "ownerReferences": [{{"kind": "DaemonSet", "name": each["set"]}}],
            }},
            "spec": {{"nodeName": each["node"]}},
            "status": {{"phase": "Running", "conditions": [{{"type": "Ready", "status": ready}}]}},
        }})
    return items

state["calls"].append([program, *words])
call = " ".join([program, *words])
failure = next((said for part, said in state["failures"].items() if call.startswith(part)), None)
if failure is None and (part := next((each for each in state.get("hiccups", {{}}) if call.startswith(each)), None)):
    # What the API server does not answer so many times.
    state["hiccups"][part] -= 1
    failure = "The connection to the server 10.0.0.1:6443 was refused"
    if not state["hiccups"][part]:
        del state["hiccups"][part]
if failure is not None:
    pass
elif program == "kubectl":
    if words[:2] == ["get", "nodes"]:
        printed = {{"kind": "List", "items": list(state["nodes"].values())}}
    elif words[:2] == ["get", "runtimeclasses.node.k8s.io"]:
        printed = state["runtime_class"] or ""
    elif words[:2] == ["get", "configmaps"]:
        there = words[2] in state.get("config_maps", {{}})
        printed = {{"kind": "ConfigMap", "data": state["config_maps"][words[2]]}} if there else ""
    elif words[:2] == ["get", "pods"] and "--namespace" in words and state.get("plugin_pods"):
        node = options("--field-selector").removeprefix("spec.nodeName=")
        items = [each for each in plugin_objects() if each["spec"].get("nodeName") == node]
        printed = {{"kind": "List", "items": items}}
    elif words[:2] == ["get", "pods"]:
        printed = {{"kind": "List", "items": state["objects"].get("pods", [])}}
    elif words[0] == "logs" and "log" in state:
        printed = state["log"]
    elif words[:2] == ["get", "namespace"]:
        there = words[2] in state["namespaces"]
        printed = {{"kind": "Namespace", "metadata": {{"labels": state["namespaces"][words[2]]}}}} if there else ""
    elif words[:2] == ["label", "namespace"]:
        state["namespaces"][words[2]].update([words[3].split("=")])
    elif words[0] in ("create", "replace"):
        made = json.load(sys.stdin)
        if made["kind"] == "Namespace":
            state["namespaces"][made["metadata"]["name"]] = made["metadata"]["labels"]
        elif made["kind"] in ("List", "Pod"):
            # "becomes": the status that each pod of the test has at once; without it, nothing becomes of them.
            for pod in made.get("items", [made]) if "becomes" in state else []:
                name = pod["metadata"]["name"]
                last = name.rpartition("-")[2]
                status = state["becomes"].get(last, state["becomes"]["all"])
                state["objects"]["daemonsets.apps,pods"].append({{**pod, "status": status}})
        else:
            state["runtime_class"] = made
    elif words[:2] == ["patch", "node"]:
        metadata, patch = state["nodes"][words[2]]["metadata"], json.loads(options("--patch"))
        if "unschedulable" in patch.get("spec", {{}}):
            state["nodes"][words[2]]["spec"] = {{"unschedulable": patch["spec"]["unschedulable"] is True}}
            # What had no room meanwhile.
            if not patch["spec"]["unschedulable"]:
                state["objects"].get("pods", []).extend(state.get("come_back", []))
        for part, values in patch["metadata"].items():
            if part == "resourceVersion":
                continue
            merged = {{**metadata.get(part, {{}}), **values}}
            metadata[part] = {{name: value for name, value in merged.items() if value is not None}}
    elif words[:2] == ["get", "--raw"] and state.get("drains"):
        nodes = [with_manager(each) for each in state["nodes"].values()]
        name = words[2].removeprefix("/api/v1/nodes").strip("/")
        printed = next((each for each in nodes if each["metadata"]["name"] == name), {{"items": nodes}})
    elif words[0] == "drain":
        pods = state["objects"]["pods"]
        state["objects"]["pods"] = [each for each in pods if each["spec"].get("nodeName") != words[1]]
    elif words[:2] == ["get", "daemonsets.apps,pods"] and state.get("plugin_pods"):
        printed = {{"kind": "List", "items": plugin_objects()}}
    elif words[:2] == ["delete", "pods"] and state.get("plugin_pods"):
        for name in [each for each in state["plugin_pods"] if each in words]:
            old = state["plugin_pods"].pop(name)
            made = {{**old, "generation": state["generation"], "ready": old["node"] not in state.get("sick", ())}}
            state["plugin_pods"][name + "x"] = made
        state["hiccups"] = state.pop("hiccups_after_delete", {{}})
    elif words[0] == "version":
        printed = {{"serverVersion": {{"gitVersion": "v1.31.4"}}}}
    elif words[0] == "api-versions":
        printed = "v1\\nnode.k8s.io/v1\\n"
    elif words[0] == "api-resources":
        printed = state["kinds"]
    elif words[:3] == ["get", "--filename", "-"] and "--namespace" not in words:
        asked = [name_of(json.loads(each)) for each in sys.stdin.read().split("\\n---\\n")]
        printed = {{"kind": "List", "items": [state["own"][name] for name in asked if name in state["own"]]}}
    elif words[0] == "get" and "--selector" in words and "--all-namespaces" in words:
        printed = {{"kind": "List", "items": [each for each in state["own"].values() if "labels" in each["metadata"]]}}
    elif words[:2] == ["get", "daemonsets.apps"] and "--namespace" in words and state.get("plugin_pods"):
        printed = {{"kind": "List", "items": [each for each in plugin_objects() if each["kind"] == "DaemonSet"]}}
    elif words[:2] == ["get", "daemonsets.apps"]:
        made = [each for each in state["own"].values() if each["kind"] == "DaemonSet"]
        printed = {{"kind": "List", "items": made + state["objects"].get("daemonsets.apps", [])}}
    elif words[:2] == ["apply", "--server-side"]:
        for each in map(json.loads, sys.stdin.read().split("\\n---\\n")):
            state["own"][name_of(each)] = {{**each, "status": {{"updatedReplicas": 1, "availableReplicas": 1}}}}
    elif words[:2] == ["delete", "pods"]:
        there = state["objects"]["daemonsets.apps,pods"]
        state["objects"]["daemonsets.apps,pods"] = [each for each in there if each["metadata"]["name"] not in words]
    elif words[0] == "delete":
        state["own"].pop(words[1].partition(".")[0] + "/" + words[2])
    elif words[:2] == ["rollout", "status"]:
        printed = "successfully rolled out"
    elif words[:3] == ["get", "--filename", "-"]:
        of = options("--namespace")
        beside = [] if of in RELEASES else state.get("daemon_live", [])
        printed = {{"kind": "List", "items": [state[RELEASES[of][1] if of in RELEASES else "live"], *beside]}}
    elif words[0] == "get" and words[1] in state["objects"]:
        printed = {{"kind": "List", "items": state["objects"][words[1]]}}
    else:
        failure = "unknown command"
else:
    of = options("--namespace") if "--namespace" in words else None
    revisions, live, release, chart, chart_version = RELEASES.get(
        of, ("revisions", "live", "nvdp", "nvidia-device-plugin", "0.20.0")
    )
    revisions = state[revisions]
    if words[0] == "version":
        printed = "v3.19.0"
    elif words[0] == "list":
        printed = [{{"name": release, "namespace": options("--namespace"), "status": "deployed"}}] if revisions else []
    elif words[0] == "history":
        printed = [
            {{
                "revision": number, "status": "deployed" if number == len(revisions) else "superseded",
                "chart": chart + "-" + chart_version, "updated": "2026-11-20T10:00:00Z",
                "description": state["described"].get(each, "Upgrade complete"),
            }}
            for number, each in enumerate(revisions, 1)
        ]
    elif words[:2] == ["get", "manifest"]:
        printed = revisions[int(options("--revision")) - 1]
    elif words[:2] == ["show", "chart"]:
        printed = {{"name": chart, "version": chart_version}}
    elif words[:2] == ["show", "values"]:
        printed = "tolerations: []\\nimage: {{pullPolicy: Always}}\\n"
    elif words[0] in ("template", "upgrade"):
        values = json.load(sys.stdin)
        content = {{
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {{"name": "all"}},
            "data": {{"values": json.dumps(values, sort_keys=True)}},
        }}
        printed = json.dumps(content)
        daemon = {{
            "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {{"name": "nvdp-mps-control-daemon"}},
            "spec": {{
                "updateStrategy": values.get("updateStrategy", {{}}),
                "template": {{"metadata": {{"annotations": {{
                    # As NVIDIA's chart, which a value of a person's own goes before.
                    "checksum/config": str(values["config"]), "image": str(values.get("image")),
                    **values.get("podAnnotations", {{}}),
                }}}}}},
            }},
        }} if state.get("with_daemon") and of not in RELEASES else None
        if daemon is not None:
            printed += "\\n---\\n" + json.dumps(daemon)
        if words[0] == "upgrade":
            if daemon is not None:
                daemon["metadata"]["namespace"] = options("--namespace")
                before = state.get("daemon_live") or [daemon]
                state["generation"] = state.get("generation", 1) + (
                    before[0]["spec"]["template"] != daemon["spec"]["template"]
                )
                state["daemon_live"] = [daemon]
            content["metadata"]["namespace"] = options("--namespace")
            revisions.append(printed)
            if "--description" in words:
                state["described"][printed] = options("--description")
            state[live] = content
    elif words[0] == "uninstall":
        revisions.clear()
        state[live] = None
    else:
        failure = "unknown command"
with open({file!r}, "w") as file:
    json.dump(state, file)
if failure is not None:
    sys.exit(f"Error: {{failure}}")
print(printed if isinstance(printed, str) else json.dumps(printed))
"""


def node(name: str, **allocatable: str) -> dict[str, Any]:
    """Return a node that is ready, as the API server has it."""
    return {
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "spec": {},
        "status": {"conditions": [{"type": "Ready", "status": "True"}], "allocatable": allocatable},
    }


@dataclass(frozen=True)
class SimulatedCluster:
    """Hold the folder with the programs and the file of a cluster that has these nodes."""

    folder: Path

    @classmethod
    def of(cls, folder: Path, *nodes: str) -> SimulatedCluster:
        """Return a cluster with these nodes, and nothing else."""
        made = cls(folder)
        state: dict[str, Any] = {
            "nodes": {name: node(name) for name in nodes}, "runtime_class": None, "revisions": [], "live": None,
            "operator": [], "operator_live": None, "other": [], "other_live": None,
            "exporter": [], "exporter_live": None, "kinds": "",
            "objects": {}, "own": {}, "calls": [], "failures": {}, "described": {},
            "namespaces": {name: dict([ENFORCED]) for name in _NAMESPACES},
        }  # fmt: skip
        made.write(**state)
        for program in ("helm", "kubectl"):
            file = folder / program
            file.write_text(_SCRIPT.format(python=sys.executable, file=str(folder / "cluster.json")))
            file.chmod(0o755)
        return made

    def settings(self, **more: Any) -> dict[str, Any]:
        """Return the settings `kubernetes` of one of its nodes."""
        programs = {program: str(self.folder / program) for program in ("helm", "kubectl")}
        return {"enabled": True, **programs, **more}

    def state(self) -> dict[str, Any]:
        """Return all there is."""
        found: dict[str, Any] = json.loads((self.folder / "cluster.json").read_text())
        return found

    def write(self, **state: Any) -> None:
        """Put something else in the place of what there is."""
        file = self.folder / "cluster.json"
        file.write_text(json.dumps({**(self.state() if file.exists() else {}), **state}))

    def labels(self, name: str) -> dict[str, str]:
        """Return a node's labels, but for the one that every node has."""
        found: dict[str, str] = dict(self.state()["nodes"][name]["metadata"]["labels"])
        found.pop("kubernetes.io/hostname")
        return found

    def called(self, words: str) -> int:
        """Return how often a command that begins so was called."""
        return sum(" ".join(call).startswith(words) for call in self.state()["calls"])
