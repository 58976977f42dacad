"""A log of one-record batches as an immutable value, for worlds that are copied a million times.

Epochs are kept by storage's own `LeaderEpochs`. The rules of the real log (bytes, recovery) have
tests of their own in tests/unit/broker/log.
"""

from dataclasses import dataclass, replace
from functools import lru_cache

from tidemark_broker.log.leader_epoch_cache import LeaderEpochs
from tidemark_protocol.ids import LeaderEpoch, Offset

Record = tuple[int, str]  # leader epoch, value
Epochs = tuple[tuple[LeaderEpoch, Offset], ...]


@lru_cache(maxsize=100_000)
def _assigned(epochs: Epochs, epoch: LeaderEpoch, start_offset: Offset) -> Epochs:
    history = LeaderEpochs(epochs)
    history.assign(epoch, start_offset)
    return history.entries


@lru_cache(maxsize=100_000)
def _truncate_from_end(epochs: Epochs, end_offset: Offset) -> Epochs:
    history = LeaderEpochs(epochs)
    history.truncate_from_end(end_offset)
    return history.entries


@lru_cache(maxsize=100_000)
def _end_offset_for(
    epochs: Epochs, epoch: LeaderEpoch, log_end_offset: Offset
) -> tuple[LeaderEpoch, Offset] | None:
    return LeaderEpochs(epochs).end_offset_for(epoch, log_end_offset)


@dataclass(frozen=True, slots=True)
class SmallLog:
    records: tuple[Record, ...] = ()
    epochs: Epochs = ()
    log_start_offset: Offset = Offset(0)

    @property
    def log_end_offset(self) -> Offset:
        return Offset(self.log_start_offset + len(self.records))

    @property
    def latest_epoch(self) -> LeaderEpoch:
        return self.epochs[-1][0] if self.epochs else LeaderEpoch(-1)

    @property
    def first_epoch(self) -> LeaderEpoch:
        return self.epochs[0][0] if self.epochs else LeaderEpoch(-1)

    def end_offset_for(self, epoch: LeaderEpoch) -> tuple[LeaderEpoch, Offset] | None:
        return _end_offset_for(self.epochs, epoch, self.log_end_offset)

    def record(self, offset: int) -> Record:
        return self.records[offset - self.log_start_offset]

    def with_epoch(self, epoch: LeaderEpoch) -> "SmallLog":
        return replace(self, epochs=_assigned(self.epochs, epoch, self.log_end_offset))

    def appended(self, record: Record) -> "SmallLog":
        epochs = _assigned(self.epochs, LeaderEpoch(record[0]), self.log_end_offset)
        return SmallLog((*self.records, record), epochs, self.log_start_offset)

    def truncated(self, to_offset: int) -> "SmallLog":
        end = Offset(min(to_offset, self.log_end_offset))
        kept = self.records[: max(0, end - self.log_start_offset)]
        return SmallLog(kept, _truncate_from_end(self.epochs, end), self.log_start_offset)

    def __str__(self) -> str:
        if len(self.records) > 6:
            epochs = " ".join(f"{epoch}@{start}" for epoch, start in self.epochs)
            return f"[{self.log_start_offset} to {self.log_end_offset}, epochs {epochs}]"
        start = f"{self.log_start_offset}: " if self.log_start_offset else ""
        return f"[{start}{' '.join(f'{value}@{epoch}' for epoch, value in self.records)}]"
