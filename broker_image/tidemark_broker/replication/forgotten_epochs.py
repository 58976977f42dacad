"""S32: which leader epochs a log cannot speak of any more. Pure."""

from tidemark_protocol.ids import LeaderEpoch

from tidemark_broker.replication.effects import LogView


def is_forgotten(epoch: LeaderEpoch, log: LogView) -> bool:
    """It lies below the log start, and so does the answer to where it ended."""
    return epoch < log.first_epoch and log.log_start_offset > 0
