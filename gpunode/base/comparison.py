"""One comparison of what is with what should be, as a finding."""

from __future__ import annotations

from dataclasses import dataclass, replace

from gpunode.base.codes import slug
from gpunode.base.disruption import Disruption
from gpunode.base.findings import EXIT_CODES, Finding, FindingClass
from gpunode.base.messages import Kind, Message, Scope
from gpunode.base.subject import Subject

AS_DESIRED = "as the settings ask"
BY_HAND = "mend what the cause names, or change the settings, and run deploys/gpu_node.py again"
RUN = "run deploys/gpu_node.py again"
DRAIN_FIRST = "drain the node, or set disruption.allow = 'restart', and " + RUN


@dataclass(frozen=True)
class FindingMessage(Message):
    """Declare what a comparison may find: `finding_message` does.

    component, what: as in Finding; of several things with one declaration each has its name after `what`
    classes: those that a finding of it may have besides ok
    """

    kind = Kind.FINDING
    component: str = ""
    what: str = ""
    scope: Scope = Scope.NODE
    classes: tuple[FindingClass, ...] = (FindingClass.DRIFT,)

    @property
    def seen(self) -> tuple[str, ...]:
        """Return how texts name it, besides its code."""
        return (f"{self.component}: {self.what}",)

    def compared(
        self,
        actual: object,
        desired: object,
        good: bool,
        *,
        of: str | None = None,
        remedy: str = RUN,
        cause: str | None = None,
        disruption: Disruption = Disruption.nothing,
    ) -> Finding:
        """Return a finding that is good or drift; cause, remedy and disruption count for drift alone.

        of: the name of the one of several things that was compared
        """
        return Finding(
            component=self.component,
            finding_class=FindingClass.OK if good else FindingClass.DRIFT,
            what=self.what if of is None else f"{self.what} {of}",
            actual="none" if actual is None else str(actual),
            desired=str(desired),
            cause=None if good else cause,
            remedy=None if good else remedy,
            disruption=None if good else disruption,
            code=self.code,
        )

    def finding(
        self,
        finding_class: FindingClass,
        actual: str | None = None,
        desired: str | None = None,
        *,
        of: str | None = None,
        cause: str | None = None,
        remedy: str | None = None,
        source: str | None = None,
        disruption: Disruption | None = None,
    ) -> Finding:
        """Return a finding of a class; of: as in `compared`."""
        what = self.what if of is None else f"{self.what} {of}"
        values = (actual, desired, cause, remedy, source, disruption)
        return Finding(self.component, finding_class, what, *values, code=self.code)

    def not_known(self, desired: str | None, cause: str, remedy: str, *, of: str | None = None) -> Finding:
        """Return a state that could not be read or judged; desired: None where no setting names it."""
        return self.finding(FindingClass.NOT_KNOWN, "not known", desired, of=of, cause=cause, remedy=remedy)


def finding_message(
    component: str,
    what: str,
    summary: str,
    detail: str,
    *,
    name: str | None = None,
    causes: tuple[str, ...] = (),
    remedies: tuple[str, ...] = (RUN,),
    scope: Scope = Scope.NODE,
    classes: tuple[FindingClass, ...] = (FindingClass.DRIFT,),
) -> FindingMessage:
    """Declare a finding; name: the second part of its code, where it is not `what` itself."""
    code = f"{slug(component)}.{name or slug(what)}"
    exits = "; ".join(f"{each}: {int(EXIT_CODES[each])}" for each in classes)
    return FindingMessage(
        code,
        summary,
        detail,
        causes,
        remedies,
        f"of gpunode drift, by its class: {exits}" if classes else "0: it changes none",
        component=component,
        what=what,
        scope=scope,
        classes=classes,
    )


def configuration(
    component: str, files: str | None, reason: str | None = None, disruption: Disruption = Disruption.nothing
) -> Finding:
    """Return a finding about the configuration of a runtime.

    files: those that a run would write anew, None where it would write none; reason: why no run can
    """
    if reason is not None:
        return Finding(
            component,
            FindingClass.ERROR,
            Subject.CONFIGURATION,
            "not to be edited by a run",
            AS_DESIRED,
            cause=reason,
            remedy=BY_HAND,
        )
    return compared(
        component,
        Subject.CONFIGURATION,
        f"another text in {files}" if files else AS_DESIRED,
        AS_DESIRED,
        not files,
        cause="they say otherwise, or elsewhere, than the settings ask",
        disruption=disruption,
    )


def unrecorded(component: str) -> Finding:
    """Return a finding about configuration files whose texts recorded facts do not have.

    What settings ask for is judged by what the runtime runs by.
    """
    cause = "recorded facts do not have the texts of its configuration files, which may hold credentials"
    remedy = "look at the node itself: `gpunode plan INVENTORY`"
    return not_known(component, Subject.CONFIGURATION, None, cause, remedy)


def compared(
    component: str,
    what: str,
    actual: object,
    desired: object,
    good: bool,
    remedy: str = RUN,
    cause: str | None = None,
    disruption: Disruption = Disruption.nothing,
) -> Finding:
    """Return a finding that is good or drift; cause, remedy and what that one disturbs count for drift alone."""
    return Finding(
        component=component,
        finding_class=FindingClass.OK if good else FindingClass.DRIFT,
        what=what,
        actual="none" if actual is None else str(actual),
        desired=str(desired),
        cause=None if good else cause,
        remedy=None if good else remedy,
        disruption=None if good else disruption,
    )


def not_known(component: str, what: str, desired: str | None, cause: str, remedy: str, code: str = "") -> Finding:
    """Return a state that could not be read or judged.

    desired: None where no setting asks for it; cause: what could not be read, and why
    """
    return Finding(component, FindingClass.NOT_KNOWN, what, "not known", desired, cause, remedy, code=code)


def pending(item: Finding, reason: str) -> Finding:
    """Return drift that waits for a restart that the settings do not allow as pending: it was not forgotten."""
    if item.finding_class is not FindingClass.DRIFT:
        return item
    # Also of a daemon that is down: its containers may run on, and would feel how it starts.
    return replace(
        item,
        finding_class=FindingClass.RESTART_PENDING,
        cause=reason,
        remedy=DRAIN_FIRST,
        disruption=Disruption.restart,
    )


def by_hand(item: Finding, cause: str) -> Finding:
    """Return a difference that no run removes as a person's to mend, with what is in the way."""
    if item.finding_class in (FindingClass.OK, FindingClass.NOT_KNOWN):
        return item
    return replace(item, cause=cause, remedy=BY_HAND, by_person=True)
