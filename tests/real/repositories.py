"""What a package manager that has read a repository, live or made by a table, finds in it; whatever its family."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import yaml

from gpunode.base import tables
from gpunode.base.tables.sources import Distribution
from tests.real import package_sets
from tests.real.checked import Checked
from tests.real.package_sets import Asked, Manager


def resolved(row: Distribution, repository: str, manager: Manager) -> Checked:
    """Return which of the sets that gpunode would ask for come, and in what the repository differs from the tables."""
    found = Checked()
    sets = list(_sets(row, repository, manager))
    if not sets:
        return Checked(beyond=[f"gpunode asks nothing of {row.name}'s {repository} repository by itself"])
    known = dict(_known_problems(row, repository))
    for asked, problem in zip(sets, manager.problems(sets), strict=True):
        expected = known.pop(asked.what, None)
        if problem is None:
            found.resolved.append(asked.what)
            if expected is not None:
                found.moved.append(f"{asked.what} resolves, and the tables say that it does not ({expected})")
        elif expected is not None and expected in problem:
            found.resolved.append(f"{asked.what} (refused, as the tables say)")
        else:
            found.problems.append(f"{asked.what}: {problem}")
    found.moved += _moved_since_seen(row, repository, manager)
    if repository == "cuda":
        found.moved += _moved_branches(row, manager)
    return found


def _sets(row: Distribution, repository: str, manager: Manager) -> Iterator[Asked]:
    yield from package_sets.other_sets(row, repository, manager)
    if repository == "cuda":
        yield from package_sets.driver_sets(row, "cuda-repository", manager)
    elif repository == "own" and (row.own_branch or row.repository is None):
        yield from package_sets.driver_sets(row, "distribution", manager)


def _moved_since_seen(row: Distribution, repository: str, manager: Manager) -> list[str]:
    """Return in what a repository differs from what it had when it was last looked at (seen.yaml)."""
    seen = yaml.safe_load((Path(__file__).parent / "seen.yaml").read_text(encoding="utf-8"))
    known = seen.get(f"{row.id} {row.version}", {})
    packages = known.get(repository, {})
    offers = manager.offers(*packages) if packages else {}
    newest = {name: offers.get(name, ("no version",))[0] for name in packages}
    return [
        f"{name} is at {newest[name]}, and was at {version} on {known['date']}"
        for name, version in packages.items()
        if newest[name] != version
    ]


def _known_problems(row: Distribution, repository: str) -> Mapping[str, str]:
    """Return what -> words of the refusal, of sets that the tables say cannot be had."""
    if repository != "own" or row.open_behind is None:
        return {}
    module, rest = row.open_behind.module, row.open_behind.rest
    words = f"at {module} and the rest of its driver at {rest}"
    return {f"driver {row.own_branch} open{group}": words for group in ("", " mps")}


def _moved_branches(row: Distribution, manager: Manager) -> list[str]:
    """Return in what the branches of NVIDIA's repository differ from the tables'."""
    told = []
    there = tuple(reversed(package_sets.branches(row, manager)))
    if row.driver_branches and there and there != row.driver_branches:
        told.append(f"driver branches {', '.join(there)}, and the table has {', '.join(row.driver_branches)}")
    unknown = [branch for branch in there if branch not in tables.drivers().branches]
    told += [f"driver branch {branch} is in no table" for branch in unknown]
    proprietary = [version for version in manager.offers("cuda-drivers").get("cuda-drivers", ())
                   if package_sets.branch_of(version) > tables.drivers().last_proprietary]  # fmt: skip
    told += [f"cuda-drivers {version} is there, of a branch without proprietary packages" for version in proprietary]
    return told
