"""Scripts for the shell of a kind node: cut pods off, and pause a process of a pod. Pure.

A pod is cut where its node forwards its packets: silent, as a network that broke. What the node
itself sends is not forwarded, so the kubelet's probes go on: a cut pod is not restarted, and only
its peers see that it is gone.

Each script starts the timer that undoes it before it does anything, so that it heals without a
runner too. It prints the time at which it was done, in ns.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from tidemark_chaos.spec import Direction

Rule = tuple[str, ...]
WAIT_SECONDS = 5  # for another process that changes rules
STOP = "kill -STOP $pids"
DONE = "date +%s%N"


@dataclass(frozen=True, slots=True)
class Cut:
    direction: Direction
    seconds: float


def rules_between(
    address: str, others: Sequence[str] | None, direction: Direction = Direction.BOTH
) -> list[Rule]:
    """Return the packets to drop between a pod and others; None: any party.

    Directions are those of the pod: `out` is what it sends.
    """
    out: list[Rule] = [("-s", address)]
    in_: list[Rule] = [("-d", address)]
    if others is not None:
        out = [("-s", address, "-d", other) for other in others]
        in_ = [("-d", address, "-s", other) for other in others]
    return [
        *(out if direction is not Direction.IN else ()),
        *(in_ if direction is not Direction.OUT else ()),
    ]


def cut_script(rules: Sequence[Rule], seconds: float) -> str:
    """Return a script that drops these packets and forwards them again after a time."""
    lines = [_iptables("--insert", rule) for rule in rules]
    return "\n".join(("set -e", _later(seconds, heal_script(rules)), *lines, DONE))


def heal_script(rules: Sequence[Rule]) -> str:
    """Return a script that forwards these packets again; what is forwarded stays as it is."""
    return "; ".join(f"{_iptables('--delete', rule)} 2> /dev/null || true" for rule in rules)


def pause_script(pod_uid: str, seconds: float) -> str:
    """Return a script that stops all processes of a pod and resumes them.

    They are found by their control group, which has the UID in its name.
    """
    names = f"{pod_uid}|{pod_uid.replace('-', '_')}"
    find = f"pids=$(grep -lE '{names}' /proc/[0-9]*/cgroup 2> /dev/null | cut -d / -f 3)"
    return "\n".join(
        (find, "set -e", 'test -n "$pids"', _later(seconds, "kill -CONT $pids"), STOP, DONE)
    )


def _iptables(what: str, rule: Rule) -> str:
    return f"iptables --wait {WAIT_SECONDS} {what} FORWARD {' '.join(rule)} --jump DROP"


def _later(seconds: float, script: str) -> str:
    return f"(sleep {seconds:g}; {script}) < /dev/null > /dev/null 2>&1 &"
