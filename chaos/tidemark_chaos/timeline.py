"""Turn samples of the controller's status into changes: leaders, in-sync sets, broker states. Pure.

A change is as exact as the samples are dense; its time is that of the sample that showed it.
"""

from dataclasses import dataclass, field
from typing import Literal

import msgspec
from tidemark_client.cluster_status import ClusterStatus
from tidemark_client.metadata import NO_LEADER, PartitionView

What = Literal["leader", "isr", "broker", "controller", "fault", "heal", "phase", "guard"]


class Change(msgspec.Struct, frozen=True, rename="camel"):
    """One line of the time line; what does not apply is -1 or empty."""

    t_ms: float  # Unix time
    what: What
    text: str
    partition: int = -1
    broker: int = -1
    leader: int = -1
    leader_epoch: int = -1
    in_sync: tuple[int, ...] = ()
    state: str = ""


@dataclass(slots=True)
class Timeline:
    topic: str
    changes: list[Change] = field(default_factory=list)
    _views: dict[int, PartitionView] = field(default_factory=dict)
    _states: dict[int, str] = field(default_factory=dict)
    _is_answering: bool = True

    def on_sample(self, t_ms: float, status: ClusterStatus | None) -> None:
        if (status is not None) != self._is_answering:
            self._is_answering = status is not None
            words = "answers again" if self._is_answering else "does not answer"
            self.changes.append(Change(t_ms, "controller", f"the controller {words}"))
        if status is None:
            return
        for row in status.brokers:
            before = self._states.get(row.broker_id)
            if before != row.state:
                self._states[row.broker_id] = row.state
                text = f"broker {row.broker_id} is {row.state}"
                text += "" if before is None else f", was {before}"
                self.changes.append(
                    Change(t_ms, "broker", text, broker=row.broker_id, state=row.state)
                )
        view = status.topic(self.topic)
        for partition in () if view is None else view.partitions:
            self._on_partition(t_ms, partition)

    def note(self, t_ms: float, what: What, text: str) -> None:
        self.changes.append(Change(t_ms, what, text))

    def _on_partition(self, t_ms: float, view: PartitionView) -> None:
        before = self._views.get(view.partition)
        self._views[view.partition] = view
        name = f"{self.topic}-{view.partition}"
        if before is None or before.leader_epoch != view.leader_epoch:
            who = "no leader" if view.leader == NO_LEADER else f"leader {view.leader}"
            text = f"{name}: {who}, leader epoch {view.leader_epoch}"
            self._add(t_ms, "leader", text, view)
        if before is None or set(before.in_sync_replicas) != set(view.in_sync_replicas):
            text = f"{name}: in sync {', '.join(map(str, sorted(view.in_sync_replicas)))}"
            self._add(t_ms, "isr", text, view)

    def _add(self, t_ms: float, what: What, text: str, view: PartitionView) -> None:
        self.changes.append(
            Change(
                t_ms,
                what,
                text,
                partition=view.partition,
                leader=view.leader,
                leader_epoch=view.leader_epoch,
                in_sync=tuple(sorted(view.in_sync_replicas)),
            )
        )
