"""Copies and keys of production cores, for worlds that branch.

Every field of a core counts in its key unless it is named here, so a new field is never missed.
"""

from collections.abc import Hashable
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar

from tidemark_broker.replication.core.remote_replica import RemoteReplica

Core = TypeVar("Core")

# The same in every state of one broker's life, kept elsewhere, or never read by a decision.
NO_STATE = frozenset(
    {
        "topic_id",
        "broker_id",
        "settings",
        "_brokers",
        "failed_isr_updates",
        "truncated_records",
        "leader_high_watermark",
        "committed_truncated_records",
        "untruncated",
        "_confirmed_at_ms",
    }
)
_FIELDS: dict[type, tuple[str, ...]] = {}  # of the mutable values inside cores


def copied_core(core: Core) -> Core:
    copy = object.__new__(type(core))
    for name, value in core.__dict__.items():
        if type(value) is dict:
            value = {key: _copied(item) for key, item in value.items()}
        copy.__dict__[name] = value
    return copy


def _copied(value: Any) -> Any:
    if type(value) is RemoteReplica:
        copy = object.__new__(RemoteReplica)
        for name in RemoteReplica.__slots__:
            setattr(copy, name, getattr(value, name))
        return copy
    return value


def core_key(core: object) -> Hashable:
    return tuple(_value_key(value) for name, value in core.__dict__.items() if name not in NO_STATE)


def _value_key(value: Any) -> Hashable:
    kind = type(value)
    if kind is dict:
        return tuple((key, _value_key(item)) for key, item in value.items())
    names = _FIELDS.get(kind)
    if names is None:
        is_mutable = is_dataclass(value) and value.__hash__ is None
        names = _FIELDS[kind] = tuple(f.name for f in fields(value)) if is_mutable else ()
    return tuple([getattr(value, name) for name in names]) if names else value
