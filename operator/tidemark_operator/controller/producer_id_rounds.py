"""The arithmetic of producer ids: rounds of one block for every broker id (producer_ids.py)."""

from tidemark_protocol.ids import FORGED_PRODUCER_IDS_FROM, BrokerId

BLOCK_SIZE = 1000
MAX_BROKERS = 1000  # of a pool: broker ids are 0 to 999
IDS_PER_ROUND = BLOCK_SIZE * MAX_BROKERS

NO_ROUND = -1


def first_producer_id(producer_id_round: int, broker_id: BrokerId) -> int:
    return producer_id_round * IDS_PER_ROUND + broker_id * BLOCK_SIZE


# guard: producer-ids-found-on-disk (S5)
def round_of(producer_id: int) -> int:
    """The round that this id came from; -1 for none and for an id that was never handed out."""
    return producer_id // IDS_PER_ROUND if 0 <= producer_id < FORGED_PRODUCER_IDS_FROM else NO_ROUND
