"""What several tests share with unit/test_device_plugin.py."""

from __future__ import annotations

from typing import Any

# By name: settings that cannot be had together -> where it is said, and what.
CONTRADICTIONS: dict[str, tuple[dict[str, Any], str, str]] = {
    "mps-with-mig": (
        {"sharing": {"strategy": "mps", "replicas": 4}, "mig": {"config": "all-balanced"}},
        "sharing.strategy", "whole GPUs by MPS",
    ),
    "mps-with-mig-strategy": (
        {"sharing": {"strategy": "mps", "replicas": 4, "mig_strategy": "single"}},
        "sharing.mig_strategy", "excludes sharing.strategy 'mps'",
    ),
    "config-map-with-config-name": (
        {"device_plugin": {"config_name": "own"}, "sharing": {"strategy": "time-slicing", "replicas": 2}},
        "device_plugin.config_name", "(config.map), which the chart takes one of",
    ),
    "config-without-config-name": ({"sharing": {"config": "own"}}, "sharing.config", "config_name names none"),
    "namespace-default": (
        {"device_plugin": {"namespace": "default"}}, "device_plugin.namespace", "refused by the chart",
    ),
    "a-list-for-a-string": (
        {"device_plugin": {"device_list_strategy": ["volume-mounts", "cdi-cri"]}},
        "device_plugin.device_list_strategy", "one string, joined by commas",
    ),
    "a-list-for-a-string-in-values": (
        {"device_plugin": {"values": {"deviceListStrategy": ["envvar"]}}}, "device_plugin.values", "as one string",
    ),
    "a-plugin-whose-chart-takes-every-node": (
        {"device_plugin": {"version": "0.14.5"}}, "device_plugin.version", "is older than the 0.15.0",
    ),
    "a-plugin-without-chart": (
        {"device_plugin": {"version": "0.11.0", "method": "manifest"}}, "device_plugin.version", "than the 0.15.0",
    ),
    "a-value-that-the-chart-writes-without-quotes": (
        {"device_plugin": {"version": "0.17.0", "fail_on_init_error": False}},
        "device_plugin.fail_on_init_error", "set device_plugin.version to 0.17.1 or newer",
    ),
    "a-release-whose-daemon-sets-names-would-be-cut": (
        {"device_plugin": {"release": "a-plugin-for-all-gpus"}}, "device_plugin.release", "20 characters at most",
    ),
    "a-name-override-by-which-names-would-be-cut": (
        {"device_plugin": {"values": {"nameOverride": "nvidia-device-plugin-for-all-of-our-nodes"}}},
        "device_plugin.values", "nvdp-nvidia-device-plugin-for-all-of-our-nodes",
    ),
    "envvar-that-the-toolkit-ignores": (
        {"toolkit": {"preset": "shared"}}, "device_plugin.device_list_strategy", "makes the toolkit ignore",
    ),
    "volume-mounts-that-mode-cdi-ignores": (
        {"toolkit": {"preset": "shared", "mode": "cdi", "cdi": "generate", "version": "1.17.9"},
         "device_plugin": {"device_list_strategy": "volume-mounts"}},
        "device_plugin.device_list_strategy", "counts for nothing in toolkit.mode 'cdi' before 1.18.0",
    ),
    "volume-mounts-that-the-toolkit-ignores": (
        {"device_plugin": {"device_list_strategy": "volume-mounts"}},
        "device_plugin.device_list_strategy", "needs toolkit.accept_nvidia_visible_devices_as_volume_mounts = True",
    ),
    "cdi-that-the-runtime-ignores": (
        {"device_plugin": {"device_list_strategy": "cdi-cri"}, "containerd": {"cdi": False}},
        "device_plugin.device_list_strategy", "containerd.cdi is False",
    ),
    "kubernetes-too-old": (
        {"kubernetes": {"enabled": True, "version": "1.9"}}, "kubernetes.version", "older than the 1.10",
    ),
    "kubernetes-too-old-for-cdi-cri": (
        {"kubernetes": {"enabled": True, "version": "1.28"}, "device_plugin": {"device_list_strategy": "cdi-cri"}},
        "device_plugin.device_list_strategy", "Kubernetes 1.29 or newer",
    ),
    "kubernetes-too-old-for-a-runtime-class": (
        {"kubernetes": {"enabled": True, "version": "1.13"}, "containerd": {"default_runtime": "runc"}},
        "device_plugin.runtime_class", "Kubernetes 1.14 or newer",
    ),
    "no-runtime-class-beside-runc": (
        {"device_plugin": {"runtime_class": "none"}, "containerd": {"default_runtime": "runc"}},
        "device_plugin.runtime_class", "see no driver",
    ),
    "a-mig-strategy-over-all-nodes": (
        {"device_plugin": {"values": {"migStrategy": "mixed"}}},
        "device_plugin.values", "sharing.mig_strategy of each node",
    ),
    "mig-devices-that-nobody-offers": (
        {"mig": {"config": "all-balanced"}}, "sharing.mig_strategy", "hides the MIG devices",
    ),
    "single-strategy-of-several-profiles": (
        {"mig": {"config": "all-balanced"}, "sharing": {"mig_strategy": "single"}},
        "sharing.mig_strategy", "of one profile",
    ),
    "mps-on-the-host": ({"mps": {"enabled": True}}, "mps.enabled", "the device plugin runs its own"),
    "a-value-that-nothing-reads": (
        {"device_plugin": {"values": {"gfd": {"sleepInterval": "30s"}}}}, "device_plugin.values", "set sleepInterval",
    ),
    "an-annotation-that-is-a-number": (
        {"device_plugin": {"values": {"podAnnotations": {"team": 42}}}}, "device_plugin.values", "podAnnotations.team",
    ),
    "annotations-that-are-a-list": (
        {"device_plugin": {"values": {"podAnnotations": ["team"]}}}, "device_plugin.values", "a mapping of strings",
    ),
    "replicas-and-resources": (
        {"sharing": {"strategy": "time-slicing", "replicas": 2, "resources": {"nvidia.com/gpu": 2}}},
        "sharing.resources", "in the place of replicas",
    ),
    "gfd-without-nfd": ({"device_plugin": {"gfd": True}}, "device_plugin.gfd", "node feature discovery"),
    "a-repository-for-a-chart-of-none": (
        {"device_plugin": {"chart": "./charts/plugin", "repository": "https://mirror.example.org"}},
        "device_plugin.repository", "is in no repository",
    ),
    "an-operator-without-nfd": (
        {"device_plugin": {"method": "gpu-operator"}}, "device_plugin.nfd", "by which it finds GPU nodes",
    ),
    "two-that-apply-mig-layouts": (
        {
            "device_plugin": {"method": "gpu-operator", "nfd": "chart"}, "gpu_operator": {"mig_manager": True},
            "mig": {"config": "all-balanced"}, "sharing": {"mig_strategy": "mixed"},
        },
        "gpu_operator.mig_manager", "by mig.config gpunode does",
    ),
    "an-operator-with-its-own-driver": (
        {"gpu_operator": {"values": {"driver": {"enabled": True}}}}, "gpu_operator.values", "driver.enabled is said by",
    ),
    "an-operator-with-its-own-toolkit": (
        {"gpu_operator": {"values": {"toolkit": {"enabled": True}}}}, "gpu_operator.values", "toolkit.enabled is said",
    ),
    "an-operator-with-its-own-plugin": (
        {"gpu_operator": {"values": {"devicePlugin": {"enabled": True}}}},
        "gpu_operator.values", "two would give the same GPUs away",
    ),
    "an-operator-that-allocates-gpus-dynamically": (
        {"gpu_operator": {"values": {"gpuCluster": {"deployCR": True}}}},
        "gpu_operator.values", "gpuCluster.deployCR is said by device_plugin",
    ),
    "an-operator-without-its-policy": (
        {"gpu_operator": {"values": {"clusterPolicy": {"deployCR": False}}}},
        "gpu_operator.values", "clusterPolicy.deployCR is said by",
    ),
    "an-operator-that-gives-gpus-to-virtual-machines": (
        {"gpu_operator": {"values": {"sandboxWorkloads": {"enabled": True, "defaultWorkload": "vm-passthrough"}}}},
        "gpu_operator.values", "sandboxWorkloads.enabled is said by",
    ),
    "an-operator-of-an-old-kubernetes": (
        {
            "device_plugin": {"method": "gpu-operator", "nfd": "present"},
            "kubernetes": {"enabled": True, "version": "1.15"},
        },
        "kubernetes.version", "1.16",
    ),
    "too-many-mps-replicas": (
        {"sharing": {"strategy": "mps", "replicas": 49}}, "sharing.replicas", "more than the 48",
    ),
    "mps-that-grants-more-than-one": (
        {"sharing": {"strategy": "mps", "replicas": 4, "fail_requests_greater_than_one": False}},
        "sharing.fail_requests_greater_than_one", "always refuses",
    ),
    "mps-of-mig-devices": (
        {"sharing": {"strategy": "mps", "resources": {"nvidia.com/mig-1g.10gb": 2}}},
        "sharing.resources", "MPS shares whole GPUs",
    ),
    "mixed-devices-shared-as-gpus": (
        {"sharing": {"strategy": "time-slicing", "mig_strategy": "mixed", "replicas": 2}},
        "sharing.replicas", "names of their own",
    ),
    "mig-resources-without-mixed": (
        {"sharing": {"strategy": "time-slicing", "resources": {"nvidia.com/mig-1g.10gb": 2}}},
        "sharing.resources", "'mixed' alone",
    ),
    "one-replica": (
        {"sharing": {"strategy": "time-slicing", "resources": {"nvidia.com/gpu": 1}}},
        "sharing.resources", "2 replicas or more",
    ),
    "no-replicas": ({"sharing": {"strategy": "time-slicing"}}, "sharing.replicas", "is missing"),
    "replicas-of-nothing": ({"sharing": {"replicas": 4}}, "sharing.replicas", "with sharing.strategy 'none'"),
    "sharing-without-a-cluster": (
        {"kubernetes": {"enabled": False}, "sharing": {"strategy": "time-slicing", "replicas": 2}},
        "sharing.replicas", "kubernetes.enabled",
    ),
    "a-runtime-class-of-no-runtime": (
        {
            "device_plugin": {"device_list_strategy": "cdi-cri", "runtime_class": "nvidia"},
            "toolkit": {"enabled": False}, "containerd": {"default_runtime": "runc"},
        },
        "device_plugin.runtime_class", "a runtime that toolkit.enabled = False leaves out",
    ),
    "no-toolkit": (
        {"toolkit": {"enabled": False}, "containerd": {"default_runtime": "runc"}},
        "device_plugin.device_list_strategy", "only CDI does without",
    ),
    "a-name-that-no-node-can-have": (
        {"kubernetes": {"enabled": True, "node_name": "gpu_1"}}, "kubernetes.node_name", "a node's name",
    ),
    "a-runner-outside-the-inventory": (
        {"kubernetes": {"enabled": True, "run_on": "control"}}, "kubernetes.run_on", "no host of this inventory",
    ),
}  # fmt: skip
