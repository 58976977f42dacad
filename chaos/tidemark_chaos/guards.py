"""Decide when an experiment has to be aborted. Pure: the caller brings the time and the samples."""

from dataclasses import dataclass, field

from tidemark_client.cluster_status import ClusterStatus

from tidemark_chaos.spec import Guards


@dataclass(slots=True)
class GuardWatch:
    guards: Guards
    topic: str
    _below_since_s: dict[int, float] = field(default_factory=dict)

    def on_sample(self, now_s: float, status: ClusterStatus | None) -> str | None:
        """Return why the experiment is aborted: too few replicas in sync for too long."""
        view = None if status is None else status.topic(self.topic)
        if view is None:
            return None
        for entry in view.partitions:
            # An election without any live replica keeps the last in-sync set: no leader is none.
            in_sync = len(entry.in_sync_replicas) if entry.leader >= 0 else 0
            if in_sync >= self.guards.min_in_sync:
                self._below_since_s.pop(entry.partition, None)
                continue
            since_s = self._below_since_s.setdefault(entry.partition, now_s)
            if now_s - since_s > self.guards.for_seconds:
                return (
                    f"{self.topic}-{entry.partition} had {in_sync} replicas in sync for more than"
                    f" {self.guards.for_seconds:g} s, the guard is {self.guards.min_in_sync}"
                )
        return None

    def on_write_gap(self, gaps_s: dict[int, float]) -> str | None:
        """Return why the experiment is aborted: the present gap of each partition is given."""
        limit = self.guards.abort_when.write_gap_seconds
        for partition, gap_s in sorted(gaps_s.items()):
            if gap_s > limit:
                return f"{self.topic}-{partition} acknowledged no record for {gap_s:.1f} s"
        return None

    def on_violations(self, found: list[str]) -> str | None:
        if len(found) >= self.guards.abort_when.violations:
            return f"a guarantee was broken while the experiment ran: {found[0]}"
        return None
