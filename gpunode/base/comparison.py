"""One comparison of what is with what should be, as a finding."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from gpunode.base.disruption import Disruption
from gpunode.base.findings import EXIT_CODES, PENDING, Finding, FindingClass
from gpunode.base.messages import Kind, Message, Scope, declared, slug, split_remedy

AS_DESIRED = "as the settings ask"
BY_HAND = "mend what the cause names, or change the settings, and run deploys/gpu_node.py again"
RUN = "run deploys/gpu_node.py again"
# Of a run that failed, which may have been one of another deploy.
RUN_AGAIN = "run the same command again"
DRAIN_FIRST = "drain the node, or set disruption.allow = 'restart', and " + RUN
REFUSED_FIRST = "resolve why preflight refuses this node: no run changes it before that"
REBOOT_NODE = "drain and reboot the node"
# What a difference may be besides drift, where a run may have to leave it for a restart or a reboot.
Classes = tuple[FindingClass, ...]
DRIFT: Classes = (FindingClass.DRIFT,)
RESTART = (FindingClass.DRIFT, FindingClass.RESTART_PENDING)
REBOOT = (FindingClass.DRIFT, FindingClass.REBOOT_PENDING)
ANY_PENDING = (*RESTART, FindingClass.REBOOT_PENDING)
# What a person does about a finding of a class, whatever the finding is about.
_REMEDIES = {
    FindingClass.DRIFT: BY_HAND,
    FindingClass.RESTART_PENDING: DRAIN_FIRST,
    FindingClass.REBOOT_PENDING: REBOOT_NODE,
}


@dataclass(frozen=True)
class FindingMessage(Message):
    """Declare what a comparison may find: `finding_message` does.

    component, what: as in Finding; of several things with one declaration each has its name after `what`
    classes: those that a finding of it may have besides ok; not known is one of each but of one without any, which
    changes no exit code: what such a one does not know, no setting may ask for
    cause: that of every difference, where there is one alone
    """

    kind = Kind.FINDING
    component: str = ""
    what: str = ""
    scope: Scope = Scope.NODE
    classes: Classes = (FindingClass.DRIFT,)
    cause: str | None = None

    @property
    def seen(self) -> tuple[str, ...]:
        """Return how texts name it, besides its code."""
        return (f"{self.component}: {self.what}",)

    def about(self, of: str | None = None) -> str:
        """Return what a finding is about; of: the name of the one of several things."""
        return self.what if of is None else f"{self.what} {of}"

    def named(self, item: Finding) -> str | None:
        """Return the name of the one of several things that a finding of this declaration is about; else None."""
        return item.what.removeprefix(f"{self.what} ") if item.code == self.code and item.what != self.what else None

    def compared(
        self,
        actual: object,
        desired: object,
        good: bool,
        *,
        of: str | None = None,
        remedy: str | None = None,
        cause: str | None = None,
        disruption: Disruption = Disruption.nothing,
    ) -> Finding:
        """Return a finding that is good or drift; cause, remedy and disruption count for drift alone.

        of: as in `about`; remedy, cause: None: the first remedy and the one cause of the declaration
        """
        return Finding(
            component=self.component,
            finding_class=FindingClass.OK if good else FindingClass.DRIFT,
            what=self.about(of),
            actual="none" if actual is None else str(actual),
            desired=str(desired),
            cause=None if good else cause or self.cause,
            remedy=None if good else remedy or self.remedies[0],
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
        """Return a finding of a class, with nothing but what is given; of: as in `about`."""
        values = (actual, desired, cause, remedy, source, disruption)
        return Finding(self.component, finding_class, self.about(of), *values, code=self.code)

    def not_known(self, desired: str | None, cause: str, remedy: str, *, of: str | None = None) -> Finding:
        """Return a state that could not be read or judged.

        desired: None where no setting asks for it; cause: what could not be read, and why; of: as in `about`
        """
        return self.finding(FindingClass.NOT_KNOWN, "not known", desired, of=of, cause=cause, remedy=remedy)


def by_scope(findings: Iterable[Finding]) -> dict[Scope, tuple[Finding, ...]]:
    """Return scope -> the findings that are declared with it; of the node where no declaration says more."""
    found: dict[Scope, tuple[Finding, ...]] = dict.fromkeys(Scope, ())
    for item in findings:
        found[getattr(declared().get(item.code), "scope", Scope.NODE)] += (item,)
    return found


def finding_message(
    component: str,
    what: str,
    summary: str,
    detail: str,
    *,
    name: str | None = None,
    cause: str | None = None,
    causes: tuple[str, ...] = (),
    remedies: tuple[str, ...] = (RUN,),
    scope: Scope = Scope.NODE,
    classes: Classes = (FindingClass.DRIFT,),
) -> FindingMessage:
    """Declare a finding.

    name: the second part of its code, where it is not `what` itself
    cause: that of every difference; causes: those that a call gives, with `REMEDY` and what to do where they have it
    """
    told = tuple(map(split_remedy, causes))
    causes, remedies = tuple(each for each, _ in told), (*remedies, *(remedy for _, remedy in told if remedy))
    code = f"{slug(component)}.{name or slug(what)}"
    exits = [f"{each}: {int(EXIT_CODES[each])}" for each in classes if each is not FindingClass.NOT_KNOWN]
    exits.append("not known: 2, 0 where no setting asks for it")
    of_classes = (_REMEDIES[each] for each in classes if each in _REMEDIES)
    return FindingMessage(
        code,
        summary,
        detail,
        causes if cause is None else (cause, *causes),
        tuple(dict.fromkeys((*remedies, *of_classes))),
        f"by its class: {'; '.join(exits)}" if classes else "0: it changes none",
        component=component,
        what=what,
        scope=scope,
        classes=classes,
        cause=cause,
    )


def file_message(component: str) -> FindingMessage:
    """Declare the finding about a file of a component that gpunode writes as a whole."""
    return finding_message(
        component,
        "file",
        f"A file that gpunode writes for {component} is not what the settings ask for.",
        "It was edited by hand, is missing or left over, or the settings or gpunode changed since the last run.",
        cause="it is not what the settings, or this gpunode, make of it",
        classes=RESTART,
    )


def running_configuration(component: str, cause: str | None = None) -> FindingMessage:
    """Declare the finding about a daemon that runs by an older configuration than its files have."""
    return finding_message(
        component,
        "running configuration",
        f"{component} still runs by an older configuration than its files have.",
        "The files are right, but the daemon read them before their last change. It needs a restart, which may "
        "disturb the node's workloads and therefore may wait for disruption.allow.",
        cause=cause,
        classes=RESTART,
    )


def configuration_files(component: str) -> FindingMessage:
    """Declare the finding about files of a component of which gpunode edits its own part alone."""
    return finding_message(
        component,
        "configuration files",
        f"The configuration files of {component} are not what a run would write.",
        "gpunode edits only its own part of these files and compares the result with their text. As an error: no run "
        "may edit them, because they cannot be parsed or another drop-in overrides what gpunode would write.",
        cause="they differ from the settings, or have them in another place",
        classes=(*RESTART, FindingClass.ERROR),
    )


def configuration(
    message: FindingMessage, files: str | None, reason: str | None = None, disruption: Disruption = Disruption.nothing
) -> Finding:
    """Return a finding about the configuration files of a daemon.

    files: those that a run would write, None where it would write none; reason: why no run can
    """
    if reason is not None:
        actual = "not to be edited by a run"
        return by_hand(message.finding(FindingClass.ERROR, actual, AS_DESIRED), reason)
    actual = f"another text in {files}" if files else AS_DESIRED
    return message.compared(actual, AS_DESIRED, not files, cause=message.causes[0], disruption=disruption)


def unrecorded(message: FindingMessage) -> Finding:
    """Return a finding about configuration files whose texts recorded facts do not have.

    What settings ask for is judged by what the runtime runs by.
    """
    cause = "recorded facts do not have the texts of its configuration files, which may hold credentials"
    return message.not_known(None, cause, "look at the node itself: `gpunode plan INVENTORY`")


def pending(
    item: Finding, reason: str, remedy: str = DRAIN_FIRST, disruption: Disruption = Disruption.restart
) -> Finding:
    """Return drift that waits for a disruption that the settings do not allow as pending: it was not forgotten."""
    if item.finding_class is not FindingClass.DRIFT:
        return item
    # Also of a daemon that is down: its containers may run on, and would feel how it starts.
    waiting = FindingClass.RESTART_PENDING
    return replace(item, finding_class=waiting, cause=reason, remedy=remedy, disruption=disruption)


def awaits_boot(item: Finding, cause: str, remedy: str = REBOOT_NODE) -> Finding:
    """Return a difference that a boot of the node removes."""
    waiting, disruption = FindingClass.REBOOT_PENDING, Disruption.reboot
    return replace(item, finding_class=waiting, cause=cause, remedy=remedy, disruption=disruption)


def while_refused(item: Finding) -> Finding:
    """Return what is found on a node that preflight refuses: before a run or a reboot the refusal is resolved."""
    if not item.remedy or (item.finding_class not in PENDING and "deploys/" not in item.remedy):
        return item
    remedy = REFUSED_FIRST if item.remedy == RUN else f"{REFUSED_FIRST}; then {item.remedy}"
    return replace(item, remedy=remedy, disruption=None, by_person=True)


def by_hand(item: Finding, cause: str, remedy: str | None = None) -> Finding:
    """Return a difference that no run removes as a person's to mend.

    cause: what is in the way, and with `REMEDY` what to do about it where `remedy` does not say that
    """
    if item.finding_class in (FindingClass.OK, FindingClass.NOT_KNOWN):
        return item
    # A refusal says so of the run; drift tells of no run.
    cause, own = split_remedy(cause.replace("; nothing was changed", ""))
    if own is not None and RUN not in own:
        own = f"{own}, and {RUN}"
    return replace(item, cause=cause, remedy=remedy or own or BY_HAND, by_person=True)
