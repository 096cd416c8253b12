"""docs/hardware.md: `page.py RESULT PAGE` puts the main job's section into it. Of the standard library alone."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

_HEAD = (
    "# Hardware\n\nWritten by `make test-hardware` and `tests/hardware/run.sh` on machines with GPUs: the last look at "
    "each kind of machine. Do not edit by hand.\n"
)
# What the page has as long as no machine had a run.
_NOT_YET = "The main job"


def page(before: str, sections: Iterable[str]) -> str:
    """Return the page with these sections; each takes the place of the one with its title."""
    found = {each.partition("\n")[0]: each for each in before.split("\n## ")[1:]}
    new = {each.partition("\n")[0]: each for each in (text.removeprefix("## ") for text in sections)}
    every = {**found, **new}
    if any(title.endswith(": the main job") for title in every):
        every.pop(_NOT_YET, None)
    return "\n".join((_HEAD, *(f"## {each.strip()}\n" for _, each in sorted(every.items()))))


def main_job(result: Mapping[str, Any], now: datetime) -> str:
    """Return the section of a run of the main job, as Markdown."""
    steps = result["steps"]
    gpus, about = result["gpus"], result["about"]
    names = ", ".join(dict.fromkeys(gpus)) or "no GPU"
    driver = result["state"].get("driver_version", "unknown").partition(";")[0]
    marked = "SIMULATED: this shows nothing of hardware.\n\n" if result["simulated"] else ""
    bad = [each["step"] for each in steps if not each["ok"]]
    verdict = f"failed: {', '.join(bad)}" if bad else "all steps are good"
    rows = [f"| {each['step']} | {_cell(each['seen'])} | {each['seconds']:.1f} |" for each in steps]
    nvml = result.get("nvml") or []
    told = [f"| {each['function']} | {_cell(each['lab'])} | {_cell(each['driver'])} |" for each in nvml]
    differences = (
        "\n\nNVML where the lab's library and the driver's differ:\n\n| function | lab | driver |\n|---|---|---|\n"
    )
    return (
        f"## {len(gpus)} × {names}, driver {driver}: the main job\n\n{marked}"
        f"{now:%Y-%m-%d}: {result['system']}, kernel {result['kernel'].partition('-')[0]}; "
        f"containerd {about['containerd']}, runc {about['runc']}, container toolkit {about['toolkit']}; "
        f"no network. {result['seconds']} s, {verdict}.\n\n"
        "| step | what was seen | seconds |\n|---|---|---|\n" + "\n".join(rows)
        + (differences + "\n".join(told) if told else "") + "\n"
    )  # fmt: skip


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")[:600]


def main(arguments: list[str]) -> int:
    """Print the section, and write it into the page unless there was no GPU or it is SIMULATED."""
    result = json.loads(Path(arguments[0]).read_text(encoding="utf-8"))
    text = main_job(result, datetime.now(UTC))
    print(text)
    if result["gpus"] and not result["simulated"]:
        path = Path(arguments[1])
        path.write_text(page(path.read_text(encoding="utf-8") if path.exists() else "", [text]), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
