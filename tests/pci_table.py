"""Generate the table of NVIDIA GPUs by PCI device id from a pci.ids file: `python -m tests.pci_table FILE`.

The rule is in tests/pci.yaml: the chip code that opens a device's name gives the generation. The examples there
win over what the database lacks or cannot tell (GH200 shares the GH100 chip).
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from gpunode import PACKAGE

# vendor, chip_prefix (prefix -> generation), examples (product -> ids, generation).
RULE: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("pci.yaml").read_text(encoding="utf-8"))
_DEVICE = re.compile(r"^\t(?P<id>[0-9a-f]{4})  (?P<name>\S.*)$")
_CHIP = re.compile(r"^(?P<prefix>G[A-Z]|TU|AD)(?P<rest>[0-9][0-9A-Z]*)\b")
# Functions of a GPU's board that are not the GPU itself, though they bear its chip's name.
_OTHER_FUNCTIONS = ("Audio", "USB", "UCSI", "NVSwitch", "Bridge", "Controller", "Ethernet")


def header(lines: Iterable[str], key: str) -> str:
    """Return the value of `#	KEY: value` in the head of a pci.ids file, `unknown` where it is missing."""
    for line in lines:
        if not line.startswith("#") and line.strip():
            break
        name, separator, value = line.lstrip("#\t ").partition(":")
        if separator and name.strip() == key:
            return value.strip()
    return "unknown"


def vendor_lines(lines: Iterable[str], vendor: str) -> list[str]:
    """Return the lines below one vendor (four hex digits) of a pci.ids file."""
    found: list[str] = []
    inside = False
    for line in lines:
        if re.match(r"^[0-9a-f]{4}  ", line):
            inside = line.startswith(vendor.lower())
        elif inside:
            found.append(line)
    return found


def devices(lines: Iterable[str]) -> dict[str, dict[str, str]]:
    """Return id -> name, chip, generation of every GPU whose chip code the rule knows, the rule's examples included."""
    found: dict[str, dict[str, str]] = {}
    for line in vendor_lines(lines, RULE["vendor"]):
        device = _DEVICE.match(line)
        if device is None or any(word in device["name"] for word in _OTHER_FUNCTIONS):
            continue
        chip = _CHIP.match(device["name"])
        if chip is None or chip["prefix"] not in RULE["chip_prefix"]:
            continue
        bracket = re.search(r"\[(.+)\]", device["name"])
        found[device["id"].upper()] = {
            "name": bracket[1] if bracket else device["name"],
            "chip": chip[0],
            "generation": RULE["chip_prefix"][chip["prefix"]],
        }
    for product, example in RULE["examples"].items():
        for device_id in example["ids"]:
            known = found.get(device_id, {"name": product, "chip": "unknown"})
            found[device_id] = {**known, "generation": example["generation"]}
    return dict(sorted(found.items()))


def rendered(head: Mapping[str, str], found: Mapping[str, Mapping[str, str]]) -> str:
    """Return the table as JSON with one device a line, so that a newer database shows as a readable difference."""
    rows = ",\n".join(f"    {json.dumps(key)}: {json.dumps(value)}" for key, value in found.items())
    top = "".join(f"  {json.dumps(key)}: {json.dumps(value)},\n" for key, value in head.items())
    return f'{{\n{top}  "devices": {{\n{rows}\n  }}\n}}\n'


def table(text: str) -> str:
    """Return the content of gpunode/data/pci_ids.json for the text of a pci.ids file."""
    lines = text.splitlines()
    head = {
        "source": "pci.ids (https://pci-ids.ucw.cz/), packaged by Debian; the examples of tests/pci.yaml win",
        "version": header(lines, "Version"),
        "date": header(lines, "Date"),
        "licence": "GPL-2.0-or-later OR BSD-3-Clause; copyright Martin Mares and Albert Pool",
        "made_by": "python -m tests.pci_table FILE",
    }
    return rendered(head, devices(lines))


def main(arguments: list[str]) -> int:
    """Write gpunode/data/pci_ids.json from the pci.ids file that is named; return the exit status."""
    if len(arguments) != 1:
        print("usage: python -m tests.pci_table FILE   (FILE: /usr/share/misc/pci.ids)", file=sys.stderr)
        return 64
    try:
        text = Path(arguments[0]).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        print(f"cannot read {arguments[0]}: {error.strerror}", file=sys.stderr)
        return 1
    content = table(text)
    found: dict[str, Any] = json.loads(content)
    if found["version"] == "unknown":
        print(f"{arguments[0]} is no pci.ids file: its head has no Version line", file=sys.stderr)
        return 1
    target = PACKAGE / "data" / "pci_ids.json"
    target.write_text(content, encoding="utf-8")
    print(f"{len(found['devices'])} GPUs of pci.ids {found['version']} written to {target.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
