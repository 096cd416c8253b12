"""-lgip, -lgipp, -lgi, -lcip and -lci, to the letter."""

from __future__ import annotations

from ..session import Failure, Session
from .instances import Instances
from .select import chosen

_PROFILES = """\
+-----------------------------------------------------------------------------+
| GPU instance profiles:                                                      |
| GPU   Name             ID    Instances   Memory     P2P    SM    DEC   ENC  |
|                              Free/Total   GiB              CE    JPEG  OFA  |
|=============================================================================|"""
_GPU_INSTANCES = """\
+-------------------------------------------------------+
| GPU instances:                                        |
| GPU   Name             Profile  Instance   Placement  |
|                          ID       ID       Start:Size |
|=======================================================|"""
_COMPUTE_PROFILES = """\
+--------------------------------------------------------------------------------------+
| Compute instance profiles:                                                           |
| GPU     GPU       Name             Profile  Instances   Exclusive       Shared       |
|       Instance                       ID     Free/Total     SM       DEC   ENC   OFA  |
|         ID                                                          CE    JPEG       |
|======================================================================================|"""
_COMPUTE_INSTANCES = """\
+--------------------------------------------------------------------+
| Compute instances:                                                 |
| GPU     GPU       Name             Profile   Instance   Placement  |
|       Instance                       ID        ID       Start:Size |
|         ID                                                         |
|====================================================================|"""


def profiles(session: Session, gpus: list[Instances], options: dict[str, str]) -> None:
    """Print the GPU instance profiles, and how many more of each find room."""
    # 580's column of names is wider by two.
    wider = 2 if session.branch >= 580 else 0
    head = [_widened(line, wider) for line in _PROFILES.splitlines()]
    session.say("\n".join(head))
    for gpu in gpus:
        for each in gpu.profiles:
            instances = f"{gpu.free(each)}/{each.most}"
            session.say(
                f"| {gpu.gpu.index:>3}  MIG {each.name:<{14 + wider}}{each.id:>2}     {instances}        "
                f"{each.memory:<11}No     {each.sm:<7}{each.dec:<6}{each.enc}   |"
            )
            session.say(f"|{'':{61 + wider}}{each.ce:<6}{each.jpeg:<6}{each.ofa}   |")
            session.say(head[0])


def _widened(line: str, by: int) -> str:
    """Return a line of the head with a wider column of names: behind that column's title, or as a longer rule."""
    return f"{line[:24]}{line[-2] * by}{line[24:]}"


def placements(session: Session, gpus: list[Instances], options: dict[str, str]) -> None:
    """Print where instances of each profile may stand, taken or not."""
    for gpu in gpus:
        for each in gpu.profiles:
            word = "Placements:" if len(each.tries) > 1 else "Placement :"
            starts = ",".join(map(str, sorted(each.tries)))
            session.say(f"GPU {gpu.gpu.index:>2} Profile ID {each.id:>2} {word} {{{starts}}}:{each.size}")


def gpu_instances(session: Session, gpus: list[Instances], options: dict[str, str]) -> None:
    """Print the GPU instances, whatever -gi says; Failure 6 where there are none."""
    found = chosen(gpus, {})
    session.say(_GPU_INSTANCES)
    for gpu, each in found:
        session.say(
            f"| {gpu.gpu.index:>3}  MIG {each.profile.name:<16}{each.profile.id:>2}{each.id:>9}          "
            f"{each.start}:{each.profile.size}     |"
        )
        session.say(_rule(_GPU_INSTANCES))


def compute_profiles(session: Session, gpus: list[Instances], options: dict[str, str]) -> None:
    """Print which compute instances each GPU instance may hold; the star is at the one that takes all of it."""
    found = chosen(gpus, options)
    session.say(_COMPUTE_PROFILES)
    for gpu, instance in found:
        of = instance.profile
        for number, size in instance.compute_profiles().items():
            star = "*" if number == of.whole else " "
            count = f"{len(instance.free_compute_starts(size))}/{of.compute // size}"
            sm = gpu.compute_sm(of, size)
            session.say(
                f"| {gpu.gpu.index:>3}{instance.id:>7}       MIG {instance.compute_name(size):<15}{number:>3}{star}"
                f"     {count}           {sm:<10}{of.dec:<6}{of.enc:<6}{of.ofa}   |"
            )
            session.say(f"|{'':70}{of.ce:<6}{of.jpeg}         |")
            session.say(_rule(_COMPUTE_PROFILES))


def compute_placements(session: Session, gpus: list[Instances], options: dict[str, str]) -> None:
    """Print where compute instances of each profile may stand, taken or not."""
    for gpu, instance in chosen(gpus, options):
        for number, size in instance.compute_profiles().items():
            starts = instance.compute_starts(size)
            word = "Placements:" if len(starts) > 1 else "Placement :"
            on = f"GPU {gpu.gpu.index:>2} GI {instance.id:>2} Profile ID {number:>2}"
            session.say(f"{on} {word} {{{','.join(map(str, starts))}}}:{size}")


def compute_instances(session: Session, gpus: list[Instances], options: dict[str, str]) -> None:
    """Print the compute instances; Failure 6 where there are none."""
    found = [(gpu, instance, each) for gpu, instance in chosen(gpus, options) for each in instance.compute]
    if not found:
        raise Failure("No compute instances found: Not Found\n", 6)
    session.say(_COMPUTE_INSTANCES)
    for gpu, instance, each in found:
        session.say(
            f"| {gpu.gpu.index:>3}{instance.id:>7}       MIG {instance.compute_name(each.size):<15}{each.profile_id:>3}"
            f"{each.id:>10}          {each.start}:{each.size}     |"
        )
        session.say(_rule(_COMPUTE_INSTANCES))


def _rule(head: str) -> str:
    return head.partition("\n")[0]


LISTS = {
    "lgip": profiles,
    "lgipp": placements,
    "lgi": gpu_instances,
    "lcip": compute_profiles,
    "lcipp": compute_placements,
    "lci": compute_instances,
}
