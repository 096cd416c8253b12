"""The fixture packages as rpm distributions have them; the contents are those of the .deb ones."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from gpunode.lab.packages.deb import Deb, Payload
from gpunode.lab.packages.rpm import Rpm

_DEPENDENCY = re.compile(r"(?P<name>\S+)(?: \((?P<sign><<|<=|=|>=|>>) (?P<version>[^)]+)\))?")
_SIGNS = {"<<": "<", ">>": ">"}
# Debian's base has it, outside of the rpm database.
_OF_THE_BASE = {"python3"}
_FOLDERS = (("usr/lib/x86_64-linux-gnu/", "usr/lib64/"), ("lib/systemd/system/", "usr/lib/systemd/system/"))
# rpm tells a script how many of the package there will be; ours expect dpkg's words. What a preinst of ours does, dpkg
# needs alone: it has dpkg forget a configuration file, which rpm takes away by itself.
_SCRIPTS = {
    "postinst": ("post", "set -- configure"),
    "prerm": ("preun", 'if [ "$1" = 0 ]; then set -- remove; else set -- upgrade; fi'),
    "postrm": ("postun", 'if [ "$1" = 0 ]; then set -- remove; else set -- upgrade; fi'),
}


def rpm_of(deb: Deb) -> Rpm:
    """Return the same package for an rpm distribution; of the driver's own, lab.packages.rpm_driver knows the names."""
    return Rpm(
        name=deb.name,
        version=deb.version.rpartition("-")[0],
        description=deb.description,
        architecture="noarch" if deb.architecture == "all" else "x86_64",
        requires=tuple(_relations(deb.depends)),
        provides=tuple(_relations(deb.provides)),
        conflicts=tuple(_relations(deb.conflicts)),
        files=tuple(replace(file, path=place(file.path)) for file in deb.files),
        scripts=tuple(
            (_SCRIPTS[name][0], f"{_SCRIPTS[name][1]}\n{_body(text)}")
            for name, text in deb.scripts
            if name != "preinst"
        ),
        config=tuple(map(place, deb.conffiles)),
    )


def _relations(field: str) -> Iterator[str]:
    for item in filter(None, (part.strip() for part in field.split(","))):
        match = _DEPENDENCY.fullmatch(item)
        assert match is not None, item
        if match["name"] in _OF_THE_BASE:
            continue
        sign = _SIGNS.get(match["sign"], match["sign"])
        yield match["name"] if match["version"] is None else f"{match['name']} {sign} {match['version']}"


def place(path: str) -> str:
    for debian, there in _FOLDERS:
        if path.startswith(debian):
            return there + path.removeprefix(debian)
    return path


def _body(script: str) -> str:
    return script.removeprefix("#!/bin/sh\n")


def system_rpm(name: str, version: str, release: str, *files: Payload, provides: tuple[str, ...] = ()) -> Rpm:
    """Return a package of the distribution itself: what Debian's base has already, or of rpm's own world."""
    return Rpm(name, version, f"{name} (SIMULATED distribution)", release=release, architecture="noarch", files=files,
               provides=provides)  # fmt: skip
