"""Every client writes, and a group of it reads, while brokers are killed again and again.

One cluster for all clients at once, each with a topic of its own of three partitions: whichever
broker falls leads something of everybody. What was acknowledged is looked for afterwards.
"""

import contextlib
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tests.compatibility.client_programs import (
    ClientProgram,
    ClientPrograms,
    able,
)
from tests.support.kafka_cluster import log_ends, read_all
from tests.support.local_cluster import LocalCluster
from tests.support.waiting import wait_for

RATE = 50  # records a second of one client
FINISH_SECONDS = 150.0  # clients give a record up after 120 s: that they would tell


@dataclass
class Outcome:
    """Of one client; whatever is listed here should not be."""

    client: str
    acknowledged: int = 0
    failures: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    twice: list[str] = field(default_factory=list)
    out_of_order: list[str] = field(default_factory=list)
    never_consumed: list[str] = field(default_factory=list)
    read_again: int = 0  # by the group: allowed, at least once is what it promises

    @property
    def is_good(self) -> bool:
        kept = not (self.failures or self.lost or self.never_consumed)
        # Without idempotence a retry may write twice, and after others.
        exact = self.client not in able("idempotent") or not (self.twice or self.out_of_order)
        return kept and exact and self.acknowledged > 0


def topic_of(client: str) -> str:
    return f"killed-{client}"


def topics_of(clients: Sequence[str]) -> dict[str, int]:
    return {topic_of(client): 3 for client in clients}


@dataclass
class _AtWork:
    producer: ClientProgram
    members: list[ClientProgram]


def run_under_kills(
    cluster: LocalCluster,
    programs: ClientPrograms,
    clients: Sequence[str],
    *,
    seconds: int,
    members: int,
    kill: Callable[[float], None],
) -> dict[str, Outcome]:
    """`members`: of each client's group. `kill(until)` does its killing, until that monotonic time
    at most."""
    with contextlib.ExitStack() as stack:
        at_work = {
            client: _AtWork(
                stack.enter_context(_producer(cluster, programs, client, seconds)),
                [stack.enter_context(_member(cluster, programs, client)) for _ in range(members)],
            )
            for client in clients
        }
        until = time.monotonic() + seconds
        for client, work in at_work.items():
            _wait_until_written(cluster, client, work.producer)
        kill(until)
        codes = {client: work.producer.wait(FINISH_SECONDS) for client, work in at_work.items()}
        cluster.wait_until_in_sync(topic_of(clients[0]))
        outcomes = {}
        for client, work in at_work.items():
            outcome = checked_proposal(cluster, client, work.producer)
            if codes[client]:
                outcome.failures.append(work.producer.errors_text())
            if members:
                _checker_group(outcome, work)
            outcomes[client] = outcome
        return outcomes


def _producer(
    cluster: LocalCluster, programs: ClientPrograms, client: str, seconds: int
) -> ClientProgram:
    how: dict[str, object] = {"count": seconds * RATE, "rate": RATE}
    if client in able("idempotent"):
        how["idempotent"] = True
    return programs.start(client, "produce", cluster, topic_of(client), **how)


def _member(cluster: LocalCluster, programs: ClientPrograms, client: str) -> ClientProgram:
    return programs.start(client, "group", cluster, topic_of(client), group=f"of-{client}")


def _wait_until_written(cluster: LocalCluster, client: str, producer: ClientProgram) -> None:
    """kcat says nothing before its end, so the log is asked."""
    ends = log_ends(cluster, topic_of(client))
    producer.wait_for(f"the first records of {client}", lambda: any(ends()))


def checked_proposal(cluster: LocalCluster, client: str, producer: ClientProgram) -> Outcome:
    acknowledged = producer.values("producer_send_success")
    errors = [str(event.get("message")) for event in producer.named("producer_send_error")]
    stored: dict[int, list[str]] = defaultdict(list)
    for message in read_all(cluster, topic_of(client)):
        stored[message.partition()].append(message.value().decode())
    counts = Counter(value for values in stored.values() for value in values)
    return Outcome(
        client,
        acknowledged=len(acknowledged),
        failures=errors,
        lost=sorted(set(acknowledged) - set(counts)),
        twice=sorted(value for value, count in counts.items() if count > 1),
        out_of_order=[late for values in stored.values() for late in late_ones(values)],
    )


def late_ones(values: Sequence[str]) -> Iterator[str]:
    """Values of one partition that come after one with a greater number."""
    greatest = -1
    for value in values:
        number = int(value.split(".")[1])
        if number < greatest:
            yield value
        greatest = max(greatest, number)


def _checker_group(outcome: Outcome, work: _AtWork) -> None:
    """Waits until the group has read what was acknowledged: it must go on after the kills."""
    wanted = set(work.producer.values("producer_send_success"))

    def consumed() -> Counter[str]:
        return Counter(value for member in work.members for value in member.values("record_data"))

    with contextlib.suppress(AssertionError):
        wait_for(
            f"the group of {outcome.client}",
            lambda: set(consumed()) >= wanted,
            seconds=60.0,
        )
    found = consumed()
    outcome.never_consumed = sorted(wanted - set(found))
    outcome.read_again = sum(count - 1 for count in found.values())
    for member in work.members:
        if member.process.poll() is not None:
            outcome.failures.append(f"a member ended: {member.errors_text()}")


def report_of(outcomes: Mapping[str, Outcome], kills: int, seconds: float) -> dict[str, object]:
    return {
        "clients": {
            client: {
                "good": outcome.is_good,
                "acknowledged": outcome.acknowledged,
                "lost": len(outcome.lost),
                "twice": len(outcome.twice),
                "outOfOrder": len(outcome.out_of_order),
                "neverConsumed": len(outcome.never_consumed),
                "readAgain": outcome.read_again,
                "failures": outcome.failures[:5],
            }
            for client, outcome in outcomes.items()
        },
        "kills": kills,
        "seconds": round(seconds, 1),
    }
