"""The main job on this machine's GPU, from bare to broken and healed, in the namespaces that boot.sh made.

It needs the standard library alone, and /opt/main-job, what carry.py packed. Each step is printed with its seconds;
all go to /opt/main-job/result.json. It exits 1 where a step failed, and where the GPU is not left as it was.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path("/opt/main-job")
sys.path.insert(0, str(HERE))
from tests.hardware.machine import Machine  # noqa: E402
from tests.hardware.nvml_compared import compared  # noqa: E402

_INVENTORY = Path("/root/main-job.py")
_PIPE = "/run/nvidia-mps"
_LEFT_OUT = "left out"
_SECONDS = 420


class StepFailed(Exception):
    """Say why a step failed."""


class Job:
    """One run of all steps."""

    def __init__(self) -> None:
        self.about = json.loads((HERE / "about.json").read_text())
        self.machine = Machine(HERE)
        self.steps: list[dict[str, Any]] = []
        self.started = time.monotonic()
        self.before: dict[str, str] = {}
        self.nvml: list[dict[str, str]] = []

    def step(self, name: str, act: Callable[[], str], *, needed: bool = False) -> None:
        """Run a step, print and keep what became of it; one that is `needed` ends the job where it fails."""
        begun = time.monotonic()
        ok = True
        try:
            seen = act()
        except (StepFailed, OSError, subprocess.SubprocessError, KeyError, ValueError) as error:
            seen, ok = f"failed: {error}", False
        seconds = time.monotonic() - begun
        self.steps.append({"step": name, "seen": seen, "seconds": round(seconds, 1), "ok": ok})
        print(f"{time.monotonic() - self.started:5.0f} s  {name} ({seconds:.1f} s): {seen}", flush=True)
        if needed and not ok:
            raise StepFailed(name)

    def gpunode(self, program: str, *words: str) -> tuple[int, dict[str, Any], str]:
        """Run gpunode or pyinfra of the carried wheel; return the exit status, its JSON, and what else it printed."""
        environment = {
            **os.environ, "PYTHONPATH": str(HERE / "site"), "NO_COLOR": "1", "GPUNODE_HISTORY": "none", "HOME": "/root",
        }  # fmt: skip
        done = subprocess.run(
            [sys.executable, HERE / "site/bin" / program, *words], cwd="/root", env=environment, text=True,
            stdin=subprocess.DEVNULL, capture_output=True, timeout=240, check=False,
        )  # fmt: skip
        try:
            return done.returncode, json.loads(done.stdout), done.stderr
        except ValueError:
            raise StepFailed(f"{program} exits {done.returncode}: {(done.stdout + done.stderr)[-1500:]}") from None

    def converge(self, changes: bool | None = None, **settings: dict[str, Any]) -> str:
        """Run deploys/gpu_node.py with the settings; `changes`: whether it must change something or nothing."""
        self.desire(**settings)
        deploy = HERE / "site/gpunode/deploys/gpu_node.py"
        code, found, errors = self.gpunode("pyinfra", "-y", "--json", str(_INVENTORY), str(deploy))
        operations = found.get("results", {}).get("operations", [])
        failed = [each["name"].split(" | ")[-1] for each in operations if each["error"]]
        changed = [each["name"].split(" | ")[-1] for each in operations if each["success"]]
        if code or failed or not operations:
            raise StepFailed(f"pyinfra exits {code}; failed: {', '.join(failed) or 'nothing'}; {_last(errors)}")
        if changes is not None and bool(changed) != changes:
            raise StepFailed(f"changed: {', '.join(changed) or 'nothing'}")
        return f"{len(changed)} of {len(operations)} operations changed something"

    def desire(self, **settings: dict[str, Any]) -> None:
        """Write the inventory: this machine, its own driver, and the carried packages."""
        key = {"key_url": f"{self.machine.served}/key.asc", "key_fingerprint": self.about["fingerprint"]}
        data: dict[str, Any] = {
            "driver": {"source": "present", "persistenced": False},
            "cuda": {"enabled": False},
            "toolkit": {"version": self.about["toolkit"], "cdi": "generate"},
            "containerd": {"source": "distribution", "default_runtime": "nvidia"},
            "verify": {"smoke": True},
            "disruption": {"allow": "restart"},
            "repositories": {"toolkit": {"url": f"{self.machine.served}/toolkit", **key}},
        }
        _INVENTORY.write_text(f"nodes = [('@local', {data | settings!r})]\n")

    def drift(self, code: int) -> str:
        """Run `gpunode drift`, which must exit with `code`; return what is not as desired."""
        found_code, found, errors = self.gpunode("gpunode", "drift", "--json", str(_INVENTORY))
        findings = [item for host in found.get("hosts", {}).values() for item in host["findings"]]
        wrong = [f"{each['what']}: {each['actual']}" for each in findings if each["class"] not in ("ok",)]
        negative = [text for text, each in zip(wrong, (e for e in findings if e["class"] != "ok"), strict=True)
                    if each["desired"] is not None]  # fmt: skip
        if found_code != code:
            raise StepFailed(f"exit status {found_code}, not {code}: {'; '.join(wrong) or _last(errors)}")
        return f"exit status {code}, {len(findings)} findings" + (
            f"; not as desired: {'; '.join(negative)}" if code else ""
        )

    def break_it(self) -> str:
        """Take away what gpunode set up: containerd's configuration, CDI specification, and MPS."""
        broken = self.machine.broken()
        if not broken:
            raise StepFailed("there was nothing to break")
        return ", ".join(broken)

    def compare_nvml(self) -> str:
        """Hold the lab's NVML library against the driver's."""
        seen: str
        seen, self.nvml = compared(HERE, self.machine.simulated)
        return seen

    def cuda(self) -> str:
        """Run the CUDA program on the machine."""
        return self._passed([HERE / "client"])

    def cuda_in_container(self) -> str:
        """Run the CUDA program in a container that NVIDIA's runtime gives the GPU."""
        return self._passed(self.machine.container())

    def cuda_by_mps(self) -> str:
        """Run the CUDA program as a client of the MPS daemon, and look for it there."""
        if self.machine.simulated:
            return f"{_LEFT_OUT}: the GPU is SIMULATED"
        stay = Path("/root/stay")
        stay.touch()
        environment = {**os.environ, "CUDA_MPS_PIPE_DIRECTORY": _PIPE}
        client = subprocess.Popen([HERE / "client", stay], env=environment, stdout=subprocess.PIPE, text=True)
        clients = 0
        for _ in range(60):
            servers = [line for line in self.machine.mps("get_server_list").split() if line.isdecimal()]
            clients = sum(len(self.machine.mps(f"get_client_list {server}").split()) for server in servers)
            if clients or client.poll() is not None:
                break
            time.sleep(0.5)
        stay.unlink()
        said, _ = client.communicate(timeout=60)
        if client.returncode or not clients:
            raise StepFailed(f"exit status {client.returncode}, {clients} clients: {said.strip()}")
        return f"{said.strip()}, {clients} client of a server"

    def _passed(self, command: list[Any]) -> str:
        done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
        # ctr warns on standard error.
        said = done.stdout.strip().splitlines() or ["it printed nothing"]
        if self.machine.simulated and said[-1].startswith("libcuda.so.1 has no cuInit"):
            return f"{_LEFT_OUT}: the GPU is SIMULATED; the program found its libcuda"
        if done.returncode or said[-1] != "PASSED":
            raise StepFailed(f"exit status {done.returncode}: {said[-1]}; {_last(done.stderr)}")
        return said[-1]

    def run(self) -> None:
        """Run all steps."""
        machine = self.machine
        mps = {"mps": {"enabled": True, "active_thread_percentage": "50"}}
        self.step("the driver's files and the carried packages", machine.prepare, needed=True)
        before = self.before = machine.state()
        self.step("the GPU before", lambda: machine.described(before), needed=True)
        self.step("NVML, the lab's and the driver's", self.compare_nvml)
        self.step("CUDA program on the machine", self.cuda)
        self.step("bare machine to GPU node, with the smoke containers", lambda: self.converge(True))
        self.step("CUDA program in a container", self.cuda_in_container)
        self.step("second run", lambda: self.converge(False))
        self.step("drift", lambda: self.drift(0))
        with_mps: dict[str, dict[str, Any]] = mps if machine.has_mps else {}
        if machine.has_mps:
            # In the mode EXCLUSIVE_PROCESS no container gets the GPU.
            self.step("MPS daemon", lambda: self.converge(True, **with_mps))
            self.step("CUDA program as a client of MPS", self.cuda_by_mps)
            self.step("second run with MPS", lambda: self.converge(False, **with_mps))
        else:
            self.step("MPS daemon", lambda: f"{_LEFT_OUT}: there is no nvidia-cuda-mps-control")
        self.step("break: taken away", self.break_it)
        self.step("drift finds it", lambda: self.drift(2))
        self.step("heal", lambda: self.converge(True, **with_mps))
        self.step("drift after it", lambda: self.drift(0))
        if machine.has_mps:
            self.step("MPS off", lambda: self.converge(True))
        self.step("CUDA program in a container, healed", self.cuda_in_container)
        self.step("the GPU after", lambda: self._after(before))

    def _after(self, before: dict[str, str]) -> str:
        after = self.machine.state()
        if after != before:
            self.machine.restore(before)
            raise StepFailed(
                "; ".join(
                    f"{name} was {before[name]}, is {after.get(name)}"
                    for name in before
                    if before[name] != after.get(name)
                )
            )
        return "as before"


def _last(text: str) -> str:
    return " / ".join(line for line in text.splitlines()[-12:] if line.strip())[-1500:]


def main() -> int:
    """Run the job and keep its result."""
    # Where its time is over, the GPU's settings are put back all the same.
    for ending in (signal.SIGTERM, signal.SIGALRM):
        signal.signal(ending, lambda number, frame: sys.exit(1))
    signal.alarm(int(os.environ.get("GPUNODE_SECONDS", _SECONDS)))
    (HERE / "pid").write_text(str(os.getpid()))
    # A proxy of the machine's cannot reach the repository, which is served here.
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        del os.environ[name]
    job = Job()
    try:
        job.run()
    except StepFailed:
        pass
    except SystemExit:
        job.steps.append(
            {"step": "time limit", "seen": "failed: stopped before the last step", "seconds": 0, "ok": False}
        )
    finally:
        signal.alarm(0)
        if job.before and job.machine.state() != job.before:
            job.machine.restore(job.before)
    bad = [each["step"] for each in job.steps if not each["ok"]]
    result = {
        "about": job.about, "simulated": job.machine.simulated, "steps": job.steps, "gpus": job.machine.gpus(),
        "seconds": round(time.monotonic() - job.started), "kernel": os.uname().release, "system": job.machine.system(),
        "state": job.before, "nvml": job.nvml,
    }  # fmt: skip
    (HERE / "result.json").write_text(json.dumps(result, indent=1))
    print(f"{result['seconds']:5.0f} s  " + (f"failed: {', '.join(bad)}" if bad else "all steps are good"), flush=True)
    return int(bool(bad) or not job.steps)


if __name__ == "__main__":
    sys.exit(main())
