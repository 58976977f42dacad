"""The arithmetic of producer ids: rounds of one block for every broker id (producer_ids.py)."""

from tidemark_protocol.ids import BrokerId

BLOCK_SIZE = 1000
MAX_BROKERS = 1000  # of a pool: broker ids are 0 to 999
IDS_PER_ROUND = BLOCK_SIZE * MAX_BROKERS

NO_ROUND = -1

# Whoever may produce can write any producer id into a batch. One from here on was never handed out
# (at a block each millisecond that takes 140 years) and must not push the counter out of 64 bits.
FORGED_FROM = 2**62


def first_producer_id(producer_id_round: int, broker_id: BrokerId) -> int:
    return producer_id_round * IDS_PER_ROUND + broker_id * BLOCK_SIZE


def round_of(producer_id: int) -> int:
    """The round that this id came from; -1 for none and for an id that was never handed out."""
    return producer_id // IDS_PER_ROUND if 0 <= producer_id < FORGED_FROM else NO_ROUND
