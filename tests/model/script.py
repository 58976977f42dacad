"""Moves as lines of text, and what a reader is told of their effects.

`fetch 1`, `fetch 1 request`, `restart 2 disk keep=1`: a word, then arguments. After a move come
the events, then one line for every broker and for the slice that changed.
"""

import re
from collections.abc import Callable

from tidemark_protocol.partition_state import Member, PartitionState

from tests.model.initial_state import Setting
from tests.model.invariants import broken_by
from tests.model.model_cluster import Cluster
from tests.model.small_broker import SmallBroker


class BadLine(Exception):
    """A line that is no move; the text says what was expected."""


def begun(line: str) -> Cluster:
    """`cluster min-isr=2 isr=0,1 replicas=0,1,2 leader=0 rule=MinInsync flush=Os`, each
    optional."""
    word, *rest = line.split()
    if word != "world":
        raise BadLine(f"a transcript begins with `world`, found {line!r}")
    options = dict(part.split("=") for part in rest)
    replicas = _numbers(options.pop("replicas", "0,1,2"))
    setting = Setting(
        replicas=replicas,
        in_sync=_numbers(options.pop("isr", ",".join(map(str, replicas)))),
        leader=int(options.pop("leader", "0")),
        min_insync=int(options.pop("min-isr", "2")),
        commit_rule=options.pop("rule", "MinInsync"),
        flush=options.pop("flush", "Os"),
        leader_epoch=int(options.pop("epoch", "0")),
        unclean=options.pop("unclean", "no") == "yes",
    )
    if options:
        raise BadLine(f"unknown options {sorted(options)} in {line!r}")
    return Cluster(setting)


def moved(cluster: Cluster, line: str) -> Cluster:
    """The world after that move; this one stays as it is."""
    word, *rest = line.split()
    move = _MOVES.get(word)
    if move is None:
        raise BadLine(f"unknown move {word!r}, expected one of {sorted(_MOVES)}")
    after = cluster.copied()
    try:
        move(after, *rest)
    except (TypeError, ValueError, StopIteration) as error:
        raise BadLine(f"{line!r}: {error!r}") from error
    after.record_committed()
    return after


def reported(cluster: Cluster, line: str) -> tuple[Cluster, list[str]]:
    """As `moved`, with what a transcript says about it."""
    if line == "show":
        return cluster, [*map(shown_broker, cluster.brokers), shown_slice(cluster.store.partition)]
    cluster.events = None
    listening = cluster.copied()
    listening.events = []
    after = moved(listening, line)
    broken = broken_by(cluster, after)
    assert after.events is not None
    lines, after.events = after.events, None
    for old, new in zip(cluster.brokers, after.brokers, strict=True):
        if shown_broker(old) != shown_broker(new):
            lines.append(shown_broker(new))
    if cluster.store.partition != after.store.partition:
        lines.append(shown_slice(after.store.partition))
    if broken:
        lines.append(f"BROKEN {broken}")
    return after, lines


def _restart(cluster: Cluster, broker: str, *rest: str) -> None:
    named = dict(part.split("=") for part in rest if "=" in part)
    proof = next((part for part in rest if part in ("proof", "disk")), "")
    keep = int(named.pop("keep")) if "keep" in named else None
    checkpoint = int(named.pop("checkpoint", "0"))
    if named:
        raise ValueError(f"unknown {sorted(named)}")
    cluster.restart(int(broker), proof=proof, keep=keep, checkpoint=checkpoint)


def _deliver(cluster: Cluster, what: str, *parties: str) -> None:
    match what:
        case "fetch":
            cluster.deliver_fetch(*map(int, parties))
        case "answer":
            cluster.deliver_response(*map(int, parties))
        case "proposal":
            cluster.deliver_proposal(*map(int, parties))
        case "write":
            cluster.land(*map(int, parties))
        case _:
            raise ValueError("expected fetch, answer, proposal or write")


def _history(cluster: Cluster, broker: str, epochs: str, end: str, start: str = "start=0") -> None:
    """`history 0 epochs=0@0,3@2 end=17 start=5`: its log from here on, records named x."""
    pairs = (part.split("@") for part in epochs.split("=")[1].split(","))
    begins = [(int(epoch), int(at)) for epoch, at in pairs]
    cluster.set_log(int(broker), begins, start=int(start.split("=")[1]), end=int(end.split("=")[1]))


def _ask(cluster: Cluster, leader: str, follower: str, last: str, offset: str) -> None:
    """`ask 0 2 last=3 offset=8`: what 0 would say to such a fetch of 2 in its leader epoch."""
    last_epoch, at = (int(text.split("=")[1]) for text in (last, offset))
    cluster.ask(int(leader), int(follower), last_epoch, at)


def _fence(cluster: Cluster, *rest: str) -> None:
    cluster.fence(*(int(part) for part in rest if part != "late"), late="late" in rest)


_MOVES: dict[str, Callable[..., object]] = {
    "append": lambda w, b, value, acks="acks=all": w.append(int(b), value, acks.split("=")[1]),
    "fetch": lambda w, b, delayed="": w.fetch(int(b), delayed),
    "deliver": _deliver,
    "lag": lambda w, leader, follower: w.lag(int(leader), int(follower)),
    "history": _history,
    "ask": _ask,
    "flush": lambda w, b: w.flush(int(b)),
    "push": lambda w, *brokers: [w.push(int(b)) for b in brokers],
    "propose": lambda w, b, how="": w.submit(int(b), how),
    "fence": _fence,
    "activate": lambda w, b: w.activate(int(b)),
    "drain": lambda w, b: w.drain(int(b)),
    "settle": lambda w: w.evaluate(),
    "choose": lambda w, b: w.choose(int(b)),
    "balance": lambda w: w.balance(),
    "min-isr": lambda w, value: w.min_isr(int(value)),
    "controller": lambda w: w.new_controller(),
    "kill": lambda w, b: w.kill(int(b)),
    "restart": _restart,
    "report": lambda w, b: w.report(int(b)),
}


def shown_broker(broker: SmallBroker) -> str:
    process = broker.process
    if process is None:
        return f"{broker.broker_id}: down, log {broker.log}"
    parts = []
    if process.leader is not None:
        leader = process.leader
        parts.append(f"leads epoch {leader.leader_epoch}")
        parts.append(f"isr {_members(leader.in_sync_replicas)}")
        if leader.pending_proposal is not None:
            parts.append(f"proposes {_members(leader.pending_proposal.new_in_sync_replicas)}")
    elif process.follower is not None:
        follower = process.follower
        parts.append(f"follows {follower.leader} in epoch {follower.leader_epoch}")
    else:
        parts.append("idle")
    parts.append(f"log {broker.log}")
    empty = [str(epoch) for epoch, start in broker.log.epochs if start == broker.log.log_end_offset]
    if empty and process.leader is None:
        parts.append(f"empty epoch {' '.join(empty)}")
    parts.append(f"watermark {process.high_watermark}")
    return f"{broker.broker_id}: {', '.join(parts)}"


def shown_slice(state: PartitionState) -> str:
    leader = f"{state.leader}@{state.leader_broker_epoch}" if state.has_leader else "none"
    eligible = f", eligible {_members(state.eligible_leaders)}" if state.eligible_leaders else ""
    return (
        f"slice {state.partition_epoch}: leader {leader} in epoch {state.leader_epoch},"
        f" isr {_members(state.in_sync_replicas)}{eligible}"
    )


def _members(members: tuple[Member, ...]) -> str:
    return "[" + " ".join(f"{m.broker_id}@{m.broker_epoch}" for m in members) + "]"


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.split(",", text) if part)
