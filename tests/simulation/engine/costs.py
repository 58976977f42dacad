"""Virtual time that work takes: callbacks, messages, objects, files, decided partitions.

In most runs a callback takes none, so no loop is ever busy. Where `Cluster.costs` is set, each loop
owes what its callbacks did and stands still for that long after them, and each job of a worker ends
so much later. A partition costs some twenty times what it takes on a machine: so a hundred in a run
are what thousands are to a cluster.
"""

import asyncio
from collections.abc import Callable, Iterator, Sized
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tidemark_operator.controller.core.metadata_image import MetadataImage
from tidemark_operator.controller.core.pool_state import PoolState


@dataclass(frozen=True, slots=True)
class Costs:
    """In microseconds."""

    callback_us: int = 30
    message_byte_us: float = 0.05  # to write or to read
    object_byte_us: float = 0.1  # of the store, by whoever asks it
    partition_us: int = 4_000  # that a controller decides about
    file_us: int = 300  # each call
    sync_us: int = 3_000

    def of_call(self, kind: str) -> int:
        return self.sync_us if kind == "sync" else self.file_us


def charge(microseconds: float) -> None:
    """To the loop that runs now."""
    loop: Any = asyncio.events._get_running_loop()
    if getattr(loop, "costs", None) is not None:
        loop.owed_us += round(microseconds)


def charge_message(data: Sized) -> None:
    loop: Any = asyncio.events._get_running_loop()
    costs: Costs | None = getattr(loop, "costs", None)
    if costs is not None:
        loop.owed_us += round(len(data) * costs.message_byte_us)


def _of_slice(self: Any, value: Any, *_: Any) -> int:
    return len(value.partitions)


def _of_image(self: Any, state: Any, partitions: Sized, **_: Any) -> int:
    return len(partitions)


# What looks at partitions, and at how many.
DECISIONS: tuple[tuple[type, str, Callable[..., int]], ...] = (
    (PoolState, "slice_after_elections", _of_slice),
    (PoolState, "balanced_slice", _of_slice),
    (MetadataImage, "set_partitions", _of_image),
)


@contextmanager
def charged_decisions(costs: Costs | None) -> Iterator[None]:
    """Inside, controllers owe what they decide, and what they make ready to be told."""
    if costs is None:
        yield
        return
    originals = [vars(owner)[name] for owner, name, _ in DECISIONS]
    for (owner, name, count), original in zip(DECISIONS, originals, strict=True):
        setattr(owner, name, _charged(original, count, costs.partition_us))
    try:
        yield
    finally:
        for (owner, name, _), original in zip(DECISIONS, originals, strict=True):
            setattr(owner, name, original)


def _charged(
    original: Callable[..., Any], count: Callable[..., int], partition_us: int
) -> Callable[..., Any]:
    def decide(*arguments: Any, **named: Any) -> Any:
        charge(partition_us * count(*arguments, **named))
        return original(*arguments, **named)

    return decide
