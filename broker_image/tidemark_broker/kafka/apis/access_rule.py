"""Define a rule of required_access.py: which access a request needs, and how a denial looks.

A rule takes the request's values and returns what the handler gets, and how its response is
completed. Rules change nothing and may run more than once.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from tidemark_protocol.access_messages import Principal, ResourceKind, Verb
from tidemark_protocol.ids import TopicId

from tidemark_broker.kafka_wire.messages.schema import Values
from tidemark_broker.metadata.metadata_cache import MetadataCache

MAX_LISTED = 1_000  # names that are asked for, each, to make a list


class Asks(Protocol):
    """What a rule asks (access_check.py)."""

    principal: Principal

    def may(self, verb: Verb, kind: ResourceKind, name: str) -> bool: ...
    def sees(self, verb: Verb, kind: ResourceKind, name: str) -> bool: ...
    def sees_every(self, verb: Verb, kind: ResourceKind) -> bool | None: ...
    def allowed_names(self, verb: Verb, kind: ResourceKind) -> frozenset[str]: ...
    def denial(self, verb: Verb, kind: ResourceKind, name: str) -> str: ...


@dataclass(frozen=True, slots=True)
class Scope:
    """What rules know beside the request; `pool` is the name of the BrokerPool."""

    version: int
    metadata: MetadataCache
    pool: str
    creates_topics: bool = False

    def visible_topics(self) -> list[str]:
        served = self.metadata.served_topic
        return [name for name in sorted(self.metadata.topics) if served(name) is not None]

    def name_of(self, topic_id: TopicId) -> str:
        """Return the name of a topic that is requested by id; "" if it is unknown."""
        known = self.metadata.topics_by_id.get(topic_id)
        return "" if known is None else known.topic


Complete = Callable[[Asks, Values], Values]


def as_it_is(asks: Asks, values: Values) -> Values:
    return values


@dataclass(frozen=True, slots=True)
class Decision:
    """What the handler gets; None: it is not called, and `values` is the response."""

    requested: Values | None
    complete: Complete = as_it_is
    values: Values = field(default_factory=dict)


Rule = Callable[[Asks, Values, Scope], Decision]


def visible(asks: Asks, kind: ResourceKind, names: Sequence[str]) -> Sequence[str]:
    """Return the names that a list shows: those that may be described.

    The access to all is asked for first. Without it a long list shows what the client has asked for
    by name before, because each other name would be a review.
    """
    every = asks.sees_every(Verb.DESCRIBE, kind)
    if every is None:
        return ()  # the rule is run again when that is known
    if every:
        return names
    if len(names) > MAX_LISTED:
        allowed = asks.allowed_names(Verb.DESCRIBE, kind)
        return [name for name in names if name in allowed]
    return [name for name in names if asks.sees(Verb.DESCRIBE, kind, name)]
