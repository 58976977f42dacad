"""What a seed says of its run beside the faults: brokers, the topic's settings, who writes how.

What was added later is drawn from streams of their own, so that it changes nothing of what a seed
or a fault profile had before.
"""

from dataclasses import dataclass, replace
from random import Random

from tidemark_broker.replication.follower_session import REPLICA_FETCH_MAX_BYTES
from tidemark_operator.controller.core.settings import ControllerSettings

from tests.simulation.engine.costs import Costs
from tests.simulation.faults.bulk import BULK_SHAPES
from tests.simulation.faults.client_triggers import CLIENT_SHAPES
from tests.simulation.faults.controller_triggers import CONTROLLER_SHAPES
from tests.simulation.faults.disk_triggers import DISK_SHAPES
from tests.simulation.faults.fault_plan import SECOND_US, PlanShape
from tests.simulation.faults.fault_profiles import plan_of
from tests.simulation.faults.faults import Fault
from tests.simulation.faults.identity_faults import IDENTITIES
from tests.simulation.faults.move_triggers import MOVE_SHAPES
from tests.simulation.faults.optional_faults import (
    COMPACTED,
    COMPACTED_FLIPS,
    CONTROLLERS_CUT_OFF,
    FLIPS_AT_REST,
    OLD_RECORDS,
    RESTING,
    SMALL_SEGMENTS,
    SPARE_BROKERS,
    UNCLEAN_ELECTIONS,
    UNCLEAN_LATER,
)
from tests.simulation.faults.triggered_faults import (
    ALL_IN_SYNC,
    BEGINS_EARLY,
    FLUSHES_ALWAYS,
    GIVES_UP_SOON,
    NEEDS_ALL_IN_SYNC,
    RACKS_OF,
)

SHARE_WITH_GROUP = 0.25  # of seeds
SHARE_WITH_SPARE_BROKERS = 0.25
SHARE_WITH_UNCLEAN_ELECTIONS = 0.2
SHARE_WITH_SMALL_SEGMENTS = 0.25
SHARE_WITH_OLD_RECORDS = 0.15
SHARE_WITH_COMPACTION = 0.2
SHARE_WITH_RESTS = 0.1
SHARE_BALANCED_OFTEN = 0.3
SHARE_WITH_CONTROLLERS_CUT_OFF = 0.2
SHARE_WITH_IDENTITIES = 0.1
SHARE_IDEMPOTENT_WITH_ANY_ACKS = 0.4  # also the producer whose acks are drawn
OFTEN_MS = 2_000  # as the pass over leaders comes once in a run at most by itself
SHARE_SHORT_OF_ROOM = 0.2  # in an answer to a follower
ROOMS_BYTES = (100, 400, 1500)  # a batch or so, of two to four partitions
UNCLEAN = ("unclean.leader.election.enable", "true")
NO_RACKS = ("", "", "")
HAS_SPARE = (SPARE_BROKERS, COMPACTED)
SPARE_RACKS = (("", "", "", ""), ("a", "b", "c", "d"), ("a", "a", "b", "c"))

SHAPES = {  # by fault profile
    **CONTROLLER_SHAPES,
    **MOVE_SHAPES,
    **DISK_SHAPES,
    **CLIENT_SHAPES,
    **BULK_SHAPES,
}


@dataclass(frozen=True, slots=True)
class Shape:
    """Of an ordinary seed, or of one in a fault profile that was asked for."""

    min_insync: int
    commit_rule: str
    flush: str
    replica_lag_max_ms: int
    acks: tuple[int, ...]
    idempotent: tuple[bool, ...]
    pauses_ms: tuple[int, ...] = (30, 80, 150)
    has_group: bool = False
    give_up_seconds: float = 6.0  # of idempotent producers, which then ask for the next epoch
    racks: tuple[str, ...] = NO_RACKS  # of as many brokers
    additions: tuple[str, ...] = ()  # of optional_faults.py
    config: tuple[tuple[str, str], ...] = ()  # of the topic, beside what is above
    record_bytes: int = 0  # at least
    log_cleaner_backoff_seconds: float = 15.0
    rest_seconds: float = 0.0  # of the first producer, which is idempotent then
    balance_interval_ms: int = ControllerSettings().balance_interval_ms
    replica_fetch_max_bytes: int = REPLICA_FETCH_MAX_BYTES
    costs: Costs | None = None  # of work, in virtual time

    @property
    def is_compacted(self) -> bool:
        return COMPACTED in self.additions

    @staticmethod
    def of(seed: int, profile: str = "") -> "Shape":
        """Drawn from a stream of its own: a fault more or less changes nothing of it.

        In a storm that was asked for producers hurry, and some wait for no follower, so that log
        ends and watermarks part; not in those of ordinary seeds, whose number counts."""
        chance = Random(f"shape of {seed}")
        shape = Shape(
            min_insync=chance.choice((1, 2, 2, 2, 2, 3)),
            commit_rule=chance.choice(("MinInsync", "MinInsync", "MinInsync", "Isr")),
            flush=chance.choice(("Os", "Os", "Os", "Always")),
            replica_lag_max_ms=chance.choice((500, 1500, 1500, 5000)),
            acks=(-1, -1, chance.choice((-1, 0, 1))),
            idempotent=(chance.random() < 0.5, chance.random() < 0.5, False),
        )
        return _stormy(shape, seed, profile) if profile else _ordinary(shape, seed)


def _stormy(shape: Shape, seed: int, profile: str) -> Shape:
    if profile in NEEDS_ALL_IN_SYNC:
        shape = replace(shape, **ALL_IN_SYNC)
    if profile == UNCLEAN_ELECTIONS:
        shape = _allowing_unclean_elections(shape)
    if profile == OLD_RECORDS:
        shape = _growing_old(shape, seed)
    if profile == IDENTITIES:
        shape = replace(shape, additions=(*shape.additions, IDENTITIES))
    if profile == RESTING:
        shape = _resting(shape, seed)
    if profile in (COMPACTED, COMPACTED_FLIPS):
        shape = _compacted(shape, seed)
    stormy = replace(
        shape,
        acks=(*shape.acks, 1, 1),
        idempotent=(*shape.idempotent, False, False),
        pauses_ms=(5, 15, 40),
        flush="Always" if profile in FLUSHES_ALWAYS else shape.flush,
        give_up_seconds=1.0 if profile in GIVES_UP_SOON else shape.give_up_seconds,
        racks=SPARE_RACKS[-1] if profile in HAS_SPARE else RACKS_OF.get(profile, NO_RACKS),
    )
    return replace(stormy, **SHAPES.get(profile, {}))


def _ordinary(shape: Shape, seed: int) -> Shape:
    has_group = Random(f"group of {seed}").random() < SHARE_WITH_GROUP
    shape = _with_spare_brokers(replace(shape, has_group=has_group), seed)
    shape = _with_small_segments(_with_unclean_elections(shape, seed), seed)
    if Random(f"old records of {seed}").random() < SHARE_WITH_OLD_RECORDS:
        shape = _growing_old(shape, seed)
    is_compacted = Random(f"policy of {seed}").random() < SHARE_WITH_COMPACTION
    shape = _compacted(shape, seed) if is_compacted else shape
    if Random(f"idempotence of {seed}").random() < SHARE_IDEMPOTENT_WITH_ANY_ACKS:
        shape = replace(shape, idempotent=(*shape.idempotent[:-1], True))
    if Random(f"balance of {seed}").random() < SHARE_BALANCED_OFTEN:
        shape = replace(shape, balance_interval_ms=OFTEN_MS)
    room = Random(f"room in answers of {seed}")
    if room.random() < SHARE_SHORT_OF_ROOM:
        shape = replace(shape, replica_fetch_max_bytes=room.choice(ROOMS_BYTES))
    if Random(f"controllers of {seed}").random() < SHARE_WITH_CONTROLLERS_CUT_OFF:
        shape = replace(shape, additions=(*shape.additions, CONTROLLERS_CUT_OFF))
    if Random(f"identities of {seed}").random() < SHARE_WITH_IDENTITIES:
        shape = replace(shape, additions=(*shape.additions, IDENTITIES))
    is_resting = Random(f"producer expiry of {seed}").random() < SHARE_WITH_RESTS
    return _resting(shape, seed) if is_resting else shape


def _with_spare_brokers(shape: Shape, seed: int) -> Shape:
    """More brokers than replicas: a move adds and removes some."""
    chance = Random(f"spare brokers of {seed}")
    if chance.random() >= SHARE_WITH_SPARE_BROKERS:
        return shape
    racks = chance.choice(SPARE_RACKS)
    return replace(shape, racks=racks, additions=(*shape.additions, SPARE_BROKERS))


def _with_unclean_elections(shape: Shape, seed: int) -> Shape:
    """From the start, or switched on and off."""
    chance = Random(f"unclean elections of {seed}")
    if chance.random() >= SHARE_WITH_UNCLEAN_ELECTIONS:
        return shape
    if chance.random() < 0.5:
        shape = replace(shape, min_insync=min(2, shape.min_insync))
        return replace(shape, additions=(*shape.additions, UNCLEAN_LATER))
    shape = _allowing_unclean_elections(shape)
    return replace(shape, additions=(*shape.additions, UNCLEAN_ELECTIONS))


def _allowing_unclean_elections(shape: Shape) -> Shape:
    """Of the entries that a min ISR of 3 leaves one is always safe."""
    min_insync = min(2, shape.min_insync)
    return replace(shape, min_insync=min_insync, config=(*shape.config, UNCLEAN))


def _with_small_segments(shape: Shape, seed: int) -> Shape:
    """Several rolls in a run, and of every second one retention: a log start that moves."""
    chance = Random(f"small segments of {seed}")
    if chance.random() >= SHARE_WITH_SMALL_SEGMENTS:
        return shape
    config = [("segment.bytes", "16384"), ("index.interval.bytes", chance.choice(("0", "4096")))]
    if chance.random() < 0.5:
        config.append(("retention.bytes", chance.choice(("16384", "49152"))))
    record_bytes = chance.choice((150, 400))
    flips = (FLIPS_AT_REST,) if chance.random() < 0.5 else ()
    return replace(
        shape,
        config=(*shape.config, *config),
        record_bytes=record_bytes,
        additions=(*shape.additions, SMALL_SEGMENTS, *flips),
    )


def _growing_old(shape: Shape, seed: int) -> Shape:
    """Retention by time: records are old within the run, or once a wall clock has jumped."""
    chance = Random(f"retention of old records of {seed}")
    config = (
        ("segment.bytes", "16384"),
        ("segment.ms", chance.choice(("200", "800"))),
        ("retention.ms", chance.choice(("500", "3000", "600000"))),
    )
    additions = (*shape.additions, OLD_RECORDS)
    return replace(shape, config=(*shape.config, *config), additions=additions)


def _compacted(shape: Shape, seed: int) -> Shape:
    """Records have keys, segments are short in time, and passes follow each other."""
    chance = Random(f"compacted records of {seed}")
    has_retention = not dict(shape.config).keys().isdisjoint(("retention.bytes", "retention.ms"))
    config = (
        ("cleanup.policy", "compact,delete" if has_retention else "compact"),
        ("segment.bytes", "16384"),
        ("segment.ms", chance.choice(("200", "800"))),
        ("min.cleanable.dirty.ratio", chance.choice(("0", "0.3"))),
        ("delete.retention.ms", chance.choice(("0", "1000", "4000", "86400000"))),
    )
    return replace(
        shape,
        config=(*shape.config, *config),
        additions=(*shape.additions, COMPACTED),
        log_cleaner_backoff_seconds=chance.choice((0.3, 1.0)),
        rest_seconds=chance.choice((1.0, 3.0)),
        idempotent=(True, *shape.idempotent[1:]),
    )


def _resting(shape: Shape, seed: int) -> Shape:
    """An idempotent producer is quiet for less or more than producers are remembered."""
    chance = Random(f"resting producers of {seed}")
    return replace(
        shape,
        config=(*shape.config, ("producer.id.expiration.ms", "3000")),
        additions=(*shape.additions, RESTING),
        idempotent=(True, *shape.idempotent[1:]),
        rest_seconds=chance.choice((2.0, 6.0)),
        give_up_seconds=1.0,
    )


def faults_of(seed: int, safety_seconds: float, profile: str = "") -> tuple[Fault, ...]:
    last_us = int((3 if profile in BEGINS_EARLY else safety_seconds - 1) * SECOND_US)
    shape = Shape.of(seed, profile)
    plan = PlanShape(len(shape.racks), controllers=2, last_us=last_us)
    return plan_of(seed, plan, profile, shape.additions)
