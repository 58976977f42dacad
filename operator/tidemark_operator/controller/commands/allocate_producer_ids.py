"""Allocate producer ids to brokers in blocks of 1000, none twice (S5).

The id space is divided into rounds, and each round has one block for every broker of the pool:
first id = (round * 1000 + broker id) * 1000. So a broker's blocks are its own by arithmetic, and
which were used is one number on its own Broker object, raised by compare-and-set before the
response. Two controllers at once meet in that compare-and-set; Broker objects have no owner and
stay as long as claims do. A new round is above that of every broker and above every id found on a
disk. If an object is missing, it is above the seconds since 1970, because not all disks may have
been reported yet: an object deleted by hand, or restored from before its broker's present epoch,
costs ids, never uniqueness; one restored from within that epoch may cost it (0091). Reasons:
docs/decisions/0007-producer-ids-by-round-and-broker.md.
"""

import logging
from dataclasses import replace

from tidemark_protocol.controller_messages import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import BrokerId

from tidemark_operator.api.broker import BLOCK_SIZE, first_producer_id
from tidemark_operator.controller.core.decision import Deferred, SaveBroker, Steps
from tidemark_operator.controller.core.pool_state import PoolState

logger = logging.getLogger(__name__)


def allocate(
    pool: PoolState, request: AllocateProducerIdsRequest
) -> Steps[AllocateProducerIdsResponse]:
    """Return the next block of a registered broker."""
    if pool.current(request.broker_id, request.broker_epoch) is None:
        return AllocateProducerIdsResponse(
            ErrorCode.STALE_BROKER_EPOCH,
            f"broker {request.broker_id}: broker epoch {request.broker_epoch} is not the"
            " registered one: register first",
            pool.controller_epoch,
        )
    producer_id_round = pool.next_producer_id_round()
    try:
        yield from _use_up(pool, request.broker_id, producer_id_round)
    except Deferred as error:
        return AllocateProducerIdsResponse(
            ErrorCode.REQUEST_TIMED_OUT, f"{error}: retry", pool.controller_epoch
        )
    first = first_producer_id(producer_id_round, request.broker_id)
    logger.info(
        "producer IDs allocated",
        extra={"pool": pool.pool, "broker_id": request.broker_id, "first_producer_id": first},
    )
    return AllocateProducerIdsResponse(
        ErrorCode.NONE,
        controller_epoch=pool.controller_epoch,
        first_producer_id=first,
        count=BLOCK_SIZE,
    )


# guard: producer-ids-stored-before-given (S5)
def _use_up(pool: PoolState, broker_id: BrokerId, producer_id_round: int) -> Steps[None]:
    # Known as used before it is written: a write of unknown outcome may have happened.
    record = replace(pool.brokers[broker_id], producer_id_round=producer_id_round)
    pool.brokers[broker_id] = record
    yield SaveBroker(record)
