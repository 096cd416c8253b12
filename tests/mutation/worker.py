"""Judges mutants in a copy of the checkout: `python -m tests.mutation.worker FOLDER`, a line of JSON each way a mutant.

A mutant is judged by a fork of a pytest process that has collected the tests: functions get their new code there, and
only those tests run that run a line of them; scripts get their new text, and the tests of the table run; the quickest
first. What cannot be put in place so, and each script that survived that, is judged by a fork of a process that has
imported everything but gpunode: pytest begins anew there. Either way the file in the copy is the mutant's, too, for the
programs that a test starts.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import CodeType
from typing import Any

import pytest
from coverage import Coverage

from tests.mutation.code_swap import changed_functions, put_in, put_in_text

# What tests and gpunode import of others; of gpunode nothing, which is to be the copy's, and the mutant's.
_OF_OTHERS = (
    "hypothesis", "jinja2", "jsonschema", "packaging.version", "pydantic", "rich.console", "tomlkit", "yaml", "click",
    "prometheus_client", "tomllib", "junitparser",
)  # fmt: skip
# Of a baseline of a few seconds: what a busy machine makes of it. A test that never ends waits for this.
_SECONDS = 60
# How a fork ends in which nothing that was imported is the changed function: what it shows would be of no mutant.
_NOWHERE, _NOT_THERE = 98, "not in place"
_OPTIONS = (
    "-q", "-p", "no:cacheprovider", "-p", "no:terminalreporter", "-p", "_hypothesis_pytestplugin",
    "-m", "not tier2 and not tier3 and not node",
)  # fmt: skip
# Taken before gevent is imported, which puts its own in their place.
_fork, _wait, _sleep = os.fork, os.waitpid, time.sleep


def main(folder: Path) -> None:
    """Answer requests until there are none; the folder holds the copy, `tree`."""
    tree = folder / "tree"
    os.chdir(tree)
    sys.path[0] = str(tree)
    sys.dont_write_bytecode = True
    for name in _OF_OTHERS:
        importlib.import_module(name)
    # What a test starts is to read no request, and to write no answer.
    requests, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    gc.freeze()
    groups: dict[str, _Collected] = {}
    for line in requests:
        asked = json.loads(line)
        if asked["do"] == "begin":
            groups[asked["group"]] = _Collected(folder, asked["tests"])
            answer: dict[str, Any] = {"failed": groups[asked["group"]].failed}
        else:
            answer = _judged(folder, groups[asked["group"]], asked)
        print(json.dumps(answer), file=answers, flush=True)


def _judged(folder: Path, group: _Collected, asked: dict[str, Any]) -> dict[str, Any]:
    path = folder / "tree" / asked["path"]
    before = path.read_text()
    began = time.monotonic()
    for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*"):
        compiled.unlink()
    path.write_text(asked["text"])
    try:
        answer = None if asked["anew"] else group.judge(str(path), before, asked)
        how = "in place"
        if answer is None or answer["ended"] == _NOT_THERE or (answer["ended"] == "survived" and asked["texts"]):
            how, answer = "anew", _anew(folder, asked["tests"])
    finally:
        path.write_text(before)
    return {"how": how, "seconds": round(time.monotonic() - began, 2), **answer}


def _anew(folder: Path, tests: list[str]) -> dict[str, Any]:
    def run() -> int:
        return int(pytest.main(["-x", *_OPTIONS, *tests]))

    return _in_fork(folder, run)


def _in_fork(folder: Path, run: Callable[[], int]) -> dict[str, Any]:
    """Return how a forked process ended: killed, survived, or out of time, and what its last test was."""
    temporary = folder / "temporary"
    told = folder / "told"
    told.write_text("")
    temporary.mkdir()
    child = _fork()
    if child == 0:
        code = 99
        try:
            os.setsid()
            tempfile.tempdir = str(temporary)
            os.environ.update(TMPDIR=str(temporary), PYTEST_ADDOPTS="-p tests.mutation.telling", GPUNODE_TOLD=str(told))
            random.seed()
            if "gevent" in sys.modules:
                sys.modules["gevent"].reinit()
            code = run()
        finally:
            os._exit(code)
    deadline = time.monotonic() + _SECONDS
    status = None
    while status is None and time.monotonic() < deadline:
        done, found = _wait(child, os.WNOHANG)
        status = os.waitstatus_to_exitcode(found) if done else None
        _sleep(0 if done else 0.01)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    if status is None:
        _wait(child, 0)
    shutil.rmtree(temporary, ignore_errors=True)
    ended = {None: "out of time", 0: "survived", _NOWHERE: _NOT_THERE}.get(status, "killed")
    return {"ended": ended, "by": told.read_text().strip()}


class _Collected:
    """A process that has collected tests, run each of them once, and forks for each mutant."""

    def __init__(self, folder: Path, tests: list[str]) -> None:
        (requests, asking), (answering, answers) = os.pipe(), os.pipe()
        if _fork() == 0:
            os.close(asking)
            os.close(answering)
            try:
                # What is imported now is no mutant, and will be imported again.
                sys.dont_write_bytecode = False
                serving = _Serving(folder, os.fdopen(requests, "r"), os.fdopen(answers, "w"))
                pytest.main(["-s", *_OPTIONS, *tests], plugins=[serving])
            finally:
                os._exit(1)
        os.close(requests)
        os.close(answers)
        self._requests, self._read = os.fdopen(asking, "w"), os.fdopen(answering)
        self.failed: list[str] = json.loads(self._read.readline() or '["the tests could not be collected"]')

    def judge(self, path: str, before: str, asked: dict[str, Any]) -> dict[str, Any] | None:
        """Return how a mutant fared; None where it cannot be put in place, or no test is known to meet it."""
        if path.endswith(".py") and changed_functions(path, before, asked["text"]) is not None:
            request = {"path": path, "before": before, "after": asked["text"]}
        elif asked["texts"]:
            request = {"texts": asked["texts"], "tests": asked["tests"]}
        else:
            return None
        print(json.dumps(request), file=self._requests, flush=True)
        answer: dict[str, Any] | None = json.loads(self._read.readline())
        return answer


class _Serving:
    """Be the plugin that forks instead of running the tests."""

    def __init__(self, folder: Path, requests: Any, answers: Any) -> None:
        self._folder, self._requests, self._answers = folder, requests, answers
        self._tree = str(folder / "tree") + "/"
        # file -> line -> numbers of the tests that run it
        self._lines: dict[str, dict[int, list[int]]] = {}
        self._seconds: list[float] = []
        self._files: dict[Path, _Asked] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self._paths = [item.path for item in session.items]
        failed = self._looked_at(session)
        sys.dont_write_bytecode = True
        self._tell(failed)
        for line in self._requests:
            asked = json.loads(line)
            numbers = self._of_texts(session, asked) if "texts" in asked else self._of_functions(asked)
            answer: dict[str, Any] | None = None
            for file in sorted(numbers, key=lambda file: sum(self._seconds[number] for number in numbers[file])):
                if file not in self._files:
                    self._files[file] = self._serving(session, file)
                chosen = sorted(numbers[file], key=lambda number: self._seconds[number])
                answer = self._files[file].ask({**asked, "numbers": chosen})
                if answer["ended"] != "survived":
                    break
            self._tell(answer)
        os._exit(0)

    def _serving(self, session: pytest.Session, file: Path) -> _Asked:
        """Return a process that has set up what tests of a file share, such as keys that take seconds to be made."""
        (requests, asking), (answering, answers) = os.pipe(), os.pipe()
        if _fork() == 0:
            os.close(asking)
            os.close(answering)
            try:
                temporary = self._folder / file.stem
                temporary.mkdir()
                os.environ["TMPDIR"] = tempfile.tempdir = str(temporary)
                _set_up([item for item in session.items if item.path == file])
                with os.fdopen(requests) as lines, os.fdopen(answers, "w") as told:
                    for line in lines:
                        print(
                            json.dumps(_in_fork(self._folder, self._one(session, json.loads(line)))),
                            file=told,
                            flush=True,
                        )
            finally:
                os._exit(0)
        os.close(requests)
        os.close(answers)
        return _Asked(asking, answering)

    def _one(self, session: pytest.Session, asked: dict[str, Any]) -> Callable[[], int]:
        def run() -> int:
            if "texts" in asked:
                put_in_text(self._tree, *asked["texts"])
            elif not put_in(asked["path"], changed_functions(asked["path"], asked["before"], asked["after"]) or []):
                return _NOWHERE
            return self._run(session, [session.items[number] for number in asked["numbers"]])

        return run

    def _of_functions(self, asked: dict[str, Any]) -> dict[Path, list[int]]:
        """Return the tests that run a line of the functions that differ, by their files."""
        path = asked["path"]
        pairs = changed_functions(path, asked["before"], asked["after"]) or []
        # Coverage knows files by where links lead.
        lines = self._lines.get(os.path.realpath(path), {})
        return self._by_file({number for old, _ in pairs for line in _lines_of(old) for number in lines.get(line, ())})

    def _of_texts(self, session: pytest.Session, asked: dict[str, Any]) -> dict[Path, list[int]]:
        files = {self._tree + test for test in asked["tests"]}
        return self._by_file({number for number, item in enumerate(session.items) if str(item.path) in files})

    def _by_file(self, numbers: set[int]) -> dict[Path, list[int]]:
        found: dict[Path, list[int]] = {}
        for number in sorted(numbers):
            found.setdefault(self._paths[number], []).append(number)
        return found

    def _tell(self, answer: object) -> None:
        print(json.dumps(answer), file=self._answers, flush=True)

    def _run(self, session: pytest.Session, items: list[pytest.Item]) -> int:
        told = Path(os.environ["GPUNODE_TOLD"])
        before = session.testsfailed
        for number, item in enumerate(items):
            told.write_text(item.nodeid)
            item.config.hook.pytest_runtest_protocol(
                item=item, nextitem=items[number + 1] if number + 1 < len(items) else None
            )
            if session.testsfailed > before:
                return 1
        told.write_text("")
        return 0

    def _looked_at(self, session: pytest.Session) -> list[str]:
        """Run all tests once, note which functions each calls and how long it takes, and return those that fail."""
        found, telling = os.pipe()
        temporary = self._folder / "temporary"
        temporary.mkdir()
        child = _fork()
        if child == 0:
            try:
                os.setsid()
                os.environ["TMPDIR"] = tempfile.tempdir = str(temporary)
                _measure(session, self._tree, telling)
            finally:
                os._exit(0)
        os.close(telling)
        failed = []
        with os.fdopen(found) as lines:
            for line in lines:
                told = json.loads(line)
                if "path" in told:
                    self._lines[told["path"]] = {int(line): tests for line, tests in told["lines"].items()}
                    continue
                self._seconds.append(told["seconds"])
                if told["fails"]:
                    failed.append(f"{session.items[len(self._seconds) - 1].nodeid}: {told['fails']}")
        _wait(child, 0)
        shutil.rmtree(temporary, ignore_errors=True)
        return failed


class _Asked:
    """Hold the way to a process that answers requests."""

    def __init__(self, asking: int, answering: int) -> None:
        self._requests, self._answers = os.fdopen(asking, "w"), os.fdopen(answering)

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        print(json.dumps(request), file=self._requests, flush=True)
        answer: dict[str, Any] = json.loads(self._answers.readline())
        return answer


def _set_up(items: list[pytest.Item]) -> None:
    """Run one test, so that what it shares with the others of its file is there; that is kept for the one to follow."""

    def shared(item: pytest.Item) -> int:
        fixtures = getattr(item, "_fixtureinfo").name2fixturedefs.values()  # noqa: B009
        return sum(each[-1].scope != "function" for each in fixtures if each)

    if len(items) > 1:
        first = max(items, key=shared)
        following = next(item for item in items if item is not first)
        first.config.hook.pytest_runtest_protocol(item=first, nextitem=following)


def _measure(session: pytest.Session, tree: str, telling: int) -> None:
    """Run all tests; tell of each whether it fails and its seconds, and of each file which tests run which line."""
    looking = Coverage(
        data_file=None, messages=False, include=[f"{tree}{room}/*" for room in ("gpunode", "operations", "facts")]
    )
    reasons: list[str] = []
    session.config.pluginmanager.register(_Reasons(reasons))
    looking.start()
    for number, item in enumerate(session.items):
        looking.switch_context(str(number))
        failed, began = session.testsfailed, time.monotonic()
        following = session.items[number + 1] if number + 1 < len(session.items) else None
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        told = {"fails": reasons[-1] if session.testsfailed > failed else "", "seconds": time.monotonic() - began}
        os.write(telling, (json.dumps(told) + "\n").encode())
        session.shouldfail = False
    looking.stop()
    found = looking.get_data()
    with os.fdopen(telling, "w") as file:
        for path in found.measured_files():
            lines = {
                line: [int(test) for test in tests if test] for line, tests in found.contexts_by_lineno(path).items()
            }
            print(json.dumps({"path": path, "lines": lines}), file=file)


class _Reasons:
    """Be the plugin that keeps why tests fail."""

    def __init__(self, reasons: list[str]) -> None:
        self._reasons = reasons

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._reasons.append(report.longreprtext[-1000:])


def _lines_of(code: CodeType) -> set[int]:
    """Return the lines of a function's body, and of what is within it; the line of its name runs at import."""
    inner = (_lines_of(each) for each in code.co_consts if isinstance(each, CodeType))
    return {line for _, _, line in code.co_lines() if line is not None}.union(*inner)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
