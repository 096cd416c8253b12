"""Ways in which a converged node strays: how, what drift says of it, and what the next run does about it.

`asked` settings are those of five nodes: three with all that containers need, one with MPS, one with MIG.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import yaml

from tests.molecule.deviations.straying import CONFIG, KEYS, six
from tests.molecule.mps.mps_nodes import PROGRAM

_TOOLKIT = "/etc/nvidia-container-runtime/config.toml"
_DAEMON = "/etc/docker/daemon.json"
_SIX = six("apt")

# What an operation is called that heals.
CONTAINERD = "Configure containerd: default runtime nvidia"
DOCKER = "Configure docker: default runtime nvidia"
CDI = "Keep a CDI specification of the loaded driver"
TOOLKIT = "Install NVIDIA container toolkit 1.17.8"
# apt holds a package no more that it was told to change all the same.
MOVED = ("Let go of the toolkit's packages where they are to move", TOOLKIT, "Hold the container toolkit")
CUDA = "Install CUDA toolkit 12.9"
LOADS = ("Load the NVIDIA kernel module",)
CUDA_KEY, TOOLKIT_KEY = "Trust the cuda repository", "Trust the toolkit repository"
MPS = "Run the MPS control daemon"
MIG = "Divide the GPUs by MIG configuration mixed"


@dataclass(frozen=True)
class Way:
    """Hold how a node strays, and what follows.

    findings: "component: what" -> class, all that drift finds not to be as desired
    repairs: the operations that heal, all that a run changes
    restarts: the services that start anew, or again
    dry: what `--dry` names, where one operation spares another its work in a run
    """

    harm: str
    findings: dict[str, str]
    repairs: tuple[str, ...]
    restarts: tuple[str, ...] = ()
    dry: tuple[str, ...] | None = None

    @property
    def would_change(self) -> tuple[str, ...]:
        """Return what `--dry` names: the verdict, too, which fails on drift, though not on what is pending."""
        verdict = ("Verify the node",) if "drift" in self.findings.values() else ()
        return (*verdict, *(self.dry or self.repairs))


def drifts(*what: str) -> dict[str, str]:
    """Return findings that are all drift."""
    return dict.fromkeys(what, "drift")


def _in_containerd(before: str, after: str, restarted: bool = True) -> str:
    restart = "\nsystemctl restart containerd" if restarted else ""
    return f"grep -q '{before}' {CONFIG} && sed -i 's/{before}/{after}/' {CONFIG}{restart}"


def _in_docker(change: str) -> str:
    return f"""python3 - <<'END'
import json, pathlib
path = pathlib.Path("{_DAEMON}")
found = json.loads(path.read_text())
{change}
path.write_text(json.dumps(found))
END
systemctl restart docker"""


def _own_file(component: str, path: str, repair: str, change: str) -> Way:
    """Return a way in which an own file is changed by the command `change`, to which its path is added."""
    harm = f'before=$(cat {path})\n{change} {path}\n[ "$before" != "$(cat {path} 2>/dev/null)" ]'
    return Way(harm, drifts(f"{component}: file {path}"), (repair,))


CONTAINERS = {
    # The toolkit's packages and its own files.
    "toolkit: all packages downgraded": Way(
        _SIX["a package downgraded"].harm.replace("install", "install --allow-change-held-packages", 1),
        # The specification names a hook that the older toolkit lacks; with the packages back it is right again.
        drifts("toolkit: nvidia-container-toolkit", "toolkit: held packages", "toolkit: CDI specification"),
        MOVED,
        dry=(*MOVED, "Keep a CDI specification of the loaded driver"),
    ),
    "toolkit: one library upgraded alone": Way(
        "apt-get install --allow-change-held-packages -q -y libnvidia-container1=1.19.1-1",
        drifts("toolkit: packages", "toolkit: held packages"),
        MOVED,
    ),
    "toolkit: no longer held": Way(
        "apt-mark unhold libnvidia-container1", drifts("toolkit: held packages"), ("Hold the container toolkit",)
    ),
    "toolkit: config.toml edited": Way(
        f"grep -q '^accept-nvidia-visible-devices-as-volume-mounts = true' {_TOOLKIT} && "
        f"sed -i '/^accept-nvidia-visible-devices-as-volume-mounts/s/true/false/' {_TOOLKIT}",
        drifts("toolkit: config.toml"),
        ("Configure the container toolkit",),
    ),
    "toolkit: a CDI specification of an older driver": Way(
        "sed -i s/580.95.05/570.172.08/g /etc/cdi/nvidia.yaml", drifts("toolkit: CDI specification"), (CDI,)
    ),
    "toolkit: no CDI specification": Way(
        "rm -f /etc/cdi/nvidia.yaml /var/run/cdi/nvidia.yaml", drifts("toolkit: CDI specification"), (CDI,)
    ),
    "toolkit: a device without its link": Way(
        "rm /dev/char/195:0", drifts("toolkit: device links"), ("Link NVIDIA's devices in /dev/char",)
    ),
    "toolkit: no udev rule": Way(
        "rm /etc/udev/rules.d/71-gpunode-nvidia-dev-char.rules",
        drifts("toolkit: device links"),
        ("Link NVIDIA's devices in /dev/char whenever the driver is loaded",),
    ),
    # containerd: what it runs by, and that it runs.
    "containerd: another default runtime, taken up": Way(
        _in_containerd('default_runtime_name = "nvidia"', 'default_runtime_name = "runc"  # by hand'),
        drifts("containerd: default runtime"),
        (CONTAINERD,),
        ("containerd.service",),
    ),
    "containerd: another default runtime, not taken up": Way(
        _in_containerd('default_runtime_name = "nvidia"', 'default_runtime_name = "runc"', restarted=False),
        {"containerd: default runtime": "drift", "containerd: running configuration": "restart pending"},
        (CONTAINERD,),
    ),
    "containerd: cgroups not systemd's": Way(
        _in_containerd("SystemdCgroup = true", "SystemdCgroup = false"),
        drifts("containerd: SystemdCgroup of runc", "containerd: SystemdCgroup of nvidia"),
        (CONTAINERD,),
        ("containerd.service",),
    ),
    "containerd: the CRI plugin switched off": Way(
        f"sed -i -e '1i disabled_plugins = [\"io.containerd.grpc.v1.cri\"]' -e '/^disabled_plugins/d' {CONFIG}\n"
        "systemctl restart containerd",
        # The merged configuration then has nothing of it.
        drifts(
            "containerd: CRI plugin",
            "containerd: default runtime",
            "containerd: SystemdCgroup of runc",
            "containerd: SystemdCgroup of nvidia",
        ),
        (CONTAINERD,),
        ("containerd.service",),
    ),
    "containerd: stopped": Way(
        "systemctl stop containerd",
        drifts("containerd: service"),
        ("Run containerd, now and at boot",),
        ("containerd.service",),
    ),
    "containerd: not started at boot": Way(
        "systemctl disable -q containerd",
        drifts("containerd: starts at boot"),
        ("Run containerd, now and at boot",),
    ),
    "containerd: a kernel parameter changed": Way(
        "sysctl -q -w net.ipv4.ip_forward=0",
        drifts("containerd: sysctl net.ipv4.ip_forward"),
        ("Set what Kubernetes needs of the kernel",),
    ),
    # docker.
    "docker: stopped": Way(
        "systemctl stop docker.socket docker",
        # What else is asked of it, only the daemon itself tells.
        drifts("docker: service", "docker: default runtime", "docker: cgroup driver", "docker: runtime nvidia"),
        ("Run docker, now and at boot",),
        ("docker.service",),
    ),
    "docker: not started at boot": Way(
        "systemctl disable -q docker", drifts("docker: starts at boot"), ("Run docker, now and at boot",)
    ),
    "docker: another default runtime": Way(
        _in_docker('found["default-runtime"] = "runc"'), drifts("docker: default runtime"), (DOCKER,)
    ),
    "docker: runtime nvidia unknown": Way(
        _in_docker('del found["default-runtime"], found["runtimes"]'),
        drifts("docker: default runtime", "docker: runtime nvidia"),
        (DOCKER,),
    ),
    "docker: cgroups not systemd's": Way(
        _in_docker('found["exec-opts"] = ["native.cgroupdriver=cgroupfs"]'),
        drifts("docker: cgroup driver"),
        (DOCKER,),
        ("docker.service",),
    ),
    # CUDA.
    "cuda: no profile script": Way(
        "rm /etc/profile.d/cuda.sh", drifts("cuda: profile script"), ("Put CUDA on the PATH",)
    ),
    "cuda: another default": Way(
        "mkdir -p /usr/local/cuda-12.4 && ln -sfn cuda-12.4 /usr/local/cuda",
        drifts("cuda: /usr/local/cuda", "cuda: nvcc"),
        ("Point /usr/local/cuda at 12.9",),
    ),
    "cuda: its package removed": Way(
        "apt-get remove -q -y cuda-toolkit-12-9",
        drifts("cuda: toolkit", "cuda: /usr/local/cuda", "cuda: nvcc"),
        (CUDA,),
        # Its package brings the link.
        dry=(CUDA, "Point /usr/local/cuda at 12.9"),
    ),
    # Repositories and their keys.
    "repositories: a key replaced": Way(
        _SIX["a key file replaced"].harm, drifts("repositories: key of toolkit"), (TOOLKIT_KEY,)
    ),
    "repositories: a key gone": Way(
        "rm /usr/share/keyrings/gpunode-cuda.gpg", drifts("repositories: key of cuda"), (CUDA_KEY,)
    ),
    "repositories: a keyring opened to everybody": Way(
        f"chmod 666 {KEYS['apt']}", drifts("repositories: keyring of toolkit"), (TOOLKIT_KEY,)
    ),
    "repositories: a keyring given away": Way(
        f"chown operator {KEYS['apt']}", drifts("repositories: keyring of toolkit"), (TOOLKIT_KEY,)
    ),
    # The driver.
    "driver: not loaded": Way(
        "rmmod nvidia_uvm; rmmod nvidia",
        drifts("driver: loaded module", "driver: GPUs by nvidia-smi"),
        ("Load the NVIDIA kernel module",),
        dry=LOADS,
    ),
    "driver: nvidia_uvm alone not loaded": Way(
        "rmmod nvidia_uvm", drifts("driver: nvidia_uvm"), ("Load the NVIDIA kernel module",), dry=LOADS
    ),
    "driver: no longer held": Way("apt-mark unhold nvidia-open", drifts("driver: held"), ("Hold the NVIDIA driver",)),
    "driver: persistence daemon stopped": Way(
        "systemctl stop nvidia-persistenced",
        drifts("driver: service nvidia-persistenced"),
        ("Run the persistence daemon, now and at boot",),
        ("nvidia-persistenced.service",),
    ),
    "driver: nvidia_uvm without its device": Way(
        "rm /dev/nvidia-uvm", drifts("driver: nvidia_uvm"), ("Load the NVIDIA kernel module",)
    ),
    "driver: persistence daemon not started at boot": Way(
        "systemctl disable -q nvidia-persistenced",
        drifts("driver: service nvidia-persistenced"),
        ("Run the persistence daemon, now and at boot",),
    ),
    # Own files of which nothing is felt yet.
    "containerd: what modules it has loaded at boot, edited": _own_file(
        "containerd", "/etc/modules-load.d/gpunode-containerd.conf", "Persist the kernel modules that containers need",
        "sed -i /overlay/d",
    ),
    "repositories: a comment in a source": _own_file(
        "repositories", "/etc/apt/sources.list.d/gpunode-toolkit.sources", TOOLKIT_KEY, "sed -i '1s/$/, and by hand/'"
    ),
    "containerd: the kernel parameters of the next boot edited": _own_file(
        "containerd", "/etc/sysctl.d/90-gpunode-kubernetes.conf", "Persist what Kubernetes needs of the kernel",
        "sed -i /ip_forward/s/1/0/",
    ),
    "driver: its parameters of the next boot edited": _own_file(
        "driver", "/etc/modprobe.d/gpunode-nvidia.conf", "Set the NVIDIA module's parameters",
        "sed -i s/=[0-9]*$/=7/",
    ),
    "toolkit: its udev rule edited": _own_file(
        "toolkit", "/etc/udev/rules.d/71-gpunode-nvidia-dev-char.rules",
        "Link NVIDIA's devices in /dev/char whenever the driver is loaded", "sed -i s/add/change/",
    ),
    "driver: its pins gone": _own_file(
        "driver", "/etc/apt/preferences.d/gpunode-driver", "Hold the NVIDIA driver", "rm"
    ),
    "node: its record is none": _own_file(
        "node", "/var/lib/gpunode/applied.json", "Record what was applied", "truncate -s 9"
    ),
    "node: an own file that others may write": Way(
        "chmod 666 /etc/apt/apt.conf.d/52gpunode-driver",
        drifts("node: files that root runs by"),
        ("Take from other users the write access to gpunode's files",),
    ),
}  # fmt: skip
_ASK = f"CUDA_MPS_PIPE_DIRECTORY=/run/nvidia-mps {PROGRAM}"
SHARED = {
    "mps: stopped": Way(
        "systemctl stop nvidia-mps",
        drifts("mps: service nvidia-mps.service", "mps: compute mode of GPU 0", "mps: compute mode of GPU 1"),
        (MPS,),
        ("nvidia-mps.service",),
    ),
    "mps: not started at boot": Way(
        "systemctl disable -q nvidia-mps", drifts("mps: starts at boot: nvidia-mps.service"), (MPS,)
    ),
    "mps: another percentage of threads": Way(
        f"echo set_default_active_thread_percentage 10 | {_ASK}",
        drifts("mps: daemon node, active_thread_percentage"),
        (MPS,),
    ),
    "mps: another limit of memory": Way(
        f"echo set_default_device_pinned_mem_limit 1 1G | {_ASK}",
        drifts("mps: daemon node, device_pinned_mem_limit 1"),
        (MPS,),
    ),
    "mps: another compute mode": Way("nvidia-smi -i 0 -c DEFAULT", drifts("mps: compute mode of GPU 0"), (MPS,)),
    "mps: its unit newer than what runs": Way(
        "echo '# by hand' >> /etc/systemd/system/nvidia-mps.service",
        {"mps: running configuration nvidia-mps.service": "restart pending"},
        (MPS,),
        ("nvidia-mps.service",),
    ),
    "mps: the settings that it starts with edited": _own_file(
        "mps", "/etc/nvidia-mps/node.settings", MPS, "sed -i s/50/10/"
    ),
}
_LAYOUT = {"3g.40gb": 1, "2g.20gb": 1, "1g.10gb": 2}
DIVIDED = {
    "mig: an instance gone": Way(
        "set -- $(nvidia-smi mig -lgip >/dev/null; nvidia-smi mig -i 0 -lgi | awk '/1g.10gb/ {print $6; exit}')\n"
        'nvidia-smi mig -i 0 -gi "$1" -dci && nvidia-smi mig -i 0 -gi "$1" -dgi',
        drifts("mig: MIG instances of GPU 0"),
        (MIG,),
    ),
    "mig: all instances gone": Way(
        "nvidia-smi mig -i 0 -dci && nvidia-smi mig -i 0 -dgi", drifts("mig: MIG instances of GPU 0"), (MIG,)
    ),
    "mig: another GPU divided": Way(
        "nvidia-smi -i 1 -mig 1",
        drifts("mig: MIG mode of GPU 1"),
        (MIG,),
    ),
    "mig: no layout for the next boot": Way(
        "rm /var/lib/gpunode/mig/layout", drifts("mig: layout for the next boot"), (MIG,)
    ),
    "mig: not brought back at boot": Way(
        "systemctl disable -q gpunode-mig-layout.service",
        drifts("mig: starts at boot: gpunode-mig-layout.service"),
        (MIG,),
    ),
    # Which is any node's, and this one has room for it in make test.
    "driver: what keeps nouveau out, edited": _own_file(
        "driver", "/etc/modprobe.d/gpunode-nouveau.conf", "Keep nouveau out, from the next boot on",
        "sed -i s/^blacklist/#blacklist/",
    ),
    "mig: what brings it back at boot edited": _own_file(
        "mig", "/usr/local/lib/gpunode/mig-layout", MIG, "sed -i s/^set/#set/"
    ),
}  # fmt: skip


def asked(folder: Path) -> dict[str, dict[str, object]]:
    """Return host -> its settings beside the lab's own; what MIG's name is for is written into `folder`."""
    first = {"devices": [0], "mig-enabled": True, "mig-devices": _LAYOUT}
    declared = {"version": "v1", "mig-configs": {"mixed": [first, {"devices": [1], "mig-enabled": False}]}}
    (folder / "mig.yaml").write_text(yaml.safe_dump(declared))
    # A group of that name has no data of the lab's.
    driver = {"version": "580.95.05", "flavour": "open"}
    containers: dict[str, object] = {
        "driver": {**driver, "module_parameters": {"NVreg_RestrictProfilingToAdminUsers": "0"}},
        "cuda": {"version": "12.9"},
        "toolkit": {"version": "1.17.8", "hold": True, "preset": "shared", "cdi": "generate"},
        "containerd": {"source": "distribution", "default_runtime": "nvidia", "kubernetes_sysctls": True},
        "docker": {"enabled": True},
    }
    alone: dict[str, object] = {name: {"enabled": False} for name in ("cuda", "toolkit", "containerd")}
    alone["driver"] = driver
    shared = {"enabled": True, "active_thread_percentage": "50", "memory_limit": "8G", "clients": 8}
    return {
        **dict.fromkeys(("gpu-1", "gpu-2", "gpu-3"), containers),
        "gpu-4": {**alone, "mps": shared},
        "gpu-5": {**alone, "mig": {"config": "mixed", "file": str(folder / "mig.yaml")}},
    }


def rounds() -> list[dict[str, str]]:
    """Return host -> name of its way, for each round: one way a node, so that each is told alone."""
    names = list(CONTAINERS)
    places = {
        **{f"gpu-{number + 1}": names[number::3] for number in range(3)}, "gpu-4": [*SHARED], "gpu-5": [*DIVIDED],
    }  # fmt: skip
    many = max(map(len, places.values()))
    return [{host: ways[at] for host, ways in places.items() if at < len(ways)} for at in range(many)]


WAYS = {**CONTAINERS, **SHARED, **DIVIDED}
