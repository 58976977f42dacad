"""A log as the cores see it, made of numbers: epochs with their starts, log start, log end."""

from dataclasses import dataclass

from tidemark_protocol.ids import LeaderEpoch, Offset


@dataclass
class EpochHistory:
    epochs: tuple[tuple[int, int], ...] = ()  # (epoch, start offset), rising
    log_end_offset: Offset = Offset(0)
    log_start_offset: Offset = Offset(0)

    @property
    def latest_epoch(self) -> LeaderEpoch:
        return LeaderEpoch(self.epochs[-1][0] if self.epochs else -1)

    @property
    def first_epoch(self) -> LeaderEpoch:
        return LeaderEpoch(self.epochs[0][0] if self.epochs else -1)

    def end_offset_for(self, epoch: LeaderEpoch) -> tuple[LeaderEpoch, Offset] | None:
        """Reference 3.2, written down a second time and as plainly as possible."""
        if epoch < 0 or epoch > self.latest_epoch:
            return None
        if epoch == self.latest_epoch:
            return epoch, self.log_end_offset
        first_epoch, first_start = self.epochs[0]
        if epoch < first_epoch:
            return epoch, Offset(first_start)
        floor = max(known for known, _ in self.epochs if known <= epoch)
        end = min(start for known, start in self.epochs if known > epoch)
        return LeaderEpoch(floor), Offset(end)
