"""Consumer groups as brokers tell them (GET /groups), and how far behind they are. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tidemark_client.metadata import UnreadableResponse

Place = tuple[str, int]


@dataclass(frozen=True, slots=True)
class GroupMember:
    member_id: str
    group_instance_id: str | None
    client_id: str
    host: str
    partitions: tuple[Place, ...]


@dataclass(frozen=True, slots=True)
class GroupOffset:
    """`end_offset` and `lag` are None if unknown; `member` is "" if no member has the partition."""

    topic: str
    partition: int
    offset: int
    committed_ms: int
    end_offset: int | None = None
    lag: int | None = None
    member: str = ""


@dataclass(frozen=True, slots=True)
class GroupView:
    group: str
    state: str
    protocol_type: str
    protocol: str
    coordinator: int
    members: tuple[GroupMember, ...] = field(default=())
    offsets: tuple[GroupOffset, ...] = field(default=())
    pool: str = ""  # the name of its BrokerPool; "" where only a broker was asked

    @property
    def topics(self) -> tuple[str, ...]:
        read = {topic for member in self.members for topic, _ in member.partitions}
        return tuple(sorted(read | {offset.topic for offset in self.offsets}))

    @property
    def lag(self) -> int | None:
        """Return the lag of all committed partitions; None if one of them is unknown."""
        lags = [offset.lag for offset in self.offsets]
        known = [lag for lag in lags if lag is not None]
        return sum(known) if len(known) == len(lags) else None

    def with_ends(self, ends: Mapping[Place, int]) -> "GroupView":
        owners = {
            place: member.client_id or member.member_id
            for member in self.members
            for place in member.partitions
        }
        offsets = []
        for offset in self.offsets:
            place = (offset.topic, offset.partition)
            end = ends.get(place)
            lag = None if end is None else max(0, end - offset.offset)
            member = owners.get(place, "")
            offsets.append(replace(offset, end_offset=end, lag=lag, member=member))
        return replace(self, offsets=tuple(offsets))


def read_groups(body: Any) -> tuple[tuple[GroupView, ...], bool]:
    """Return the groups of one broker, and whether it may still find more."""
    try:
        broker_id = int(body["broker_id"])
        groups = tuple(_read_group(group, broker_id) for group in body["groups"])
        return groups, bool(body["is_loading"])
    except (KeyError, TypeError, ValueError) as error:
        raise UnreadableResponse(f"expected a broker's groups, found no {error}") from error


def merged(groups: Iterable[GroupView]) -> tuple[GroupView, ...]:
    """Merge the views of several brokers by group name.

    A former coordinator may report a group too: the view with more members, then with more offsets,
    is kept.
    """
    best: dict[str, GroupView] = {}
    for group in groups:
        known = best.get(group.group)
        if known is None or _weight(known) < _weight(group):
            best[group.group] = group
    return tuple(best[name] for name in sorted(best))


def _weight(group: GroupView) -> tuple[int, int]:
    return len(group.members), len(group.offsets)


def _read_group(body: Any, broker_id: int) -> GroupView:
    return GroupView(
        str(body["group"]),
        str(body["state"]),
        str(body["protocol_type"]),
        str(body["protocol"]),
        broker_id,
        tuple(
            GroupMember(
                str(member["member_id"]),
                member["group_instance_id"],
                str(member["client_id"]),
                str(member["host"]),
                tuple((str(p["topic"]), int(p["partition"])) for p in member["partitions"]),
            )
            for member in body["members"]
        ),
        tuple(
            GroupOffset(
                str(offset["topic"]),
                int(offset["partition"]),
                int(offset["offset"]),
                int(offset["committed_ms"]),
            )
            for offset in body["offsets"]
        ),
    )
