"""What happened to a made-up cluster in a day: brokers that were away, leaders, lagging followers.

Six brokers, three replicas of each partition. Every broker is restarted once as planned, one is
killed, never two at a time; followers fall behind at random, sometimes while another replica is
away. Everything follows from the partition's number: the same in every run.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Longs = NDArray[np.int64]
Floats = NDArray[np.float64]

BROKERS = 6
REPLICAS = 3
MIN_ISR = 2
DAY_MS = 86_400_000
INTERVAL_MS = 15_000
PHASE_MS = 2_500  # between the scrapes of two brokers
ELECTION_MS = 2_000  # from a leader's end to the next one's epoch: no scrape lies between
LAG_MAX_MS = 10_000  # replica.lag.time.max.ms
CATCH_UP_MS = 20_000
HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class Absence:
    broker: int
    start_ms: int
    end_ms: int
    is_planned: bool


def _just_after_a_scrape(broker: int, near_ms: int) -> int:
    return near_ms // INTERVAL_MS * INTERVAL_MS + broker * PHASE_MS + 100


ABSENCES = (
    *(
        Absence(broker, start, start + 60_000 + 7_000 * broker, True)
        for broker in range(BROKERS)
        for start in (_just_after_a_scrape(broker, 2 * HOUR_MS + broker * 600_000),)
    ),
    Absence(
        2, _just_after_a_scrape(2, 13 * HOUR_MS), _just_after_a_scrape(2, 13 * HOUR_MS) + 290_000,
        False,
    ),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class LeaderTerm:
    """One leader's epoch, until the next one begins."""

    from_ms: int
    leader: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Episode:
    """A follower that falls further and further behind."""

    follower: int
    start_ms: int
    end_ms: int


def replicas_of(partition: int) -> tuple[int, ...]:
    return tuple((partition + place) % BROKERS for place in range(REPLICAS))


def reigns_of(partition: int) -> tuple[LeaderTerm, ...]:
    """Leadership stays where it went: the next replica that is there takes it over."""
    replicas = replicas_of(partition)
    found = [LeaderTerm(0, replicas[0], 5)]
    for absence in ABSENCES:
        if absence.broker == found[-1].leader:
            place = replicas.index(absence.broker)
            heir = replicas[(place + 1) % REPLICAS]
            at_ms = absence.start_ms + ELECTION_MS
            found.append(LeaderTerm(at_ms, heir, found[-1].epoch + 1))
    return tuple(found)


def episodes_of(partition: int, random: np.random.Generator) -> tuple[Episode, ...]:
    replicas = replicas_of(partition)
    found = []
    for _ in range(int(random.integers(0, 4))):
        start = int(random.integers(4 * HOUR_MS, 23 * HOUR_MS))
        length = int(random.integers(20_000, 300_000))
        found.append(Episode(replicas[int(random.integers(REPLICAS))], start, start + length))
    if partition % 13 == 0 and 2 in replicas:  # one replica is left of three
        killed = ABSENCES[-1]
        other = replicas[(replicas.index(2) + 2) % REPLICAS]
        found.append(Episode(other, killed.start_ms - 60_000, killed.start_ms + 120_000))
    return tuple(found)


def log_end(partition: int, at_ms: Longs) -> Floats:
    """Records until then: 5 to 500 a second, in waves; it never falls."""
    rate = 5 + (partition * 37) % 496
    seconds = at_ms / 1000
    return np.asarray(1e6 + np.floor(rate * (seconds + 100 * np.sin(seconds / 300))))


def is_there(broker: int, at_ms: Longs) -> NDArray[np.bool_]:
    there = np.ones(len(at_ms), dtype=np.bool_)
    for absence in ABSENCES:
        if absence.broker == broker:
            there &= (at_ms < absence.start_ms) | (at_ms >= absence.end_ms)
    return there


def scrapes_of(broker: int) -> Longs:
    """Those at which it answered."""
    times = np.arange(broker * PHASE_MS, DAY_MS, INTERVAL_MS, dtype=np.int64)
    return times[is_there(broker, times)]


def lives_before(broker: int, at_ms: Longs) -> Longs:
    """How often it had been started again."""
    lives = np.zeros(len(at_ms), dtype=np.int64)
    for absence in ABSENCES:
        if absence.broker == broker:
            lives += at_ms >= absence.end_ms
    return lives


def behind_ms(partition: int, follower: int, episodes: tuple[Episode, ...], at_ms: Longs) -> Longs:
    """Since when the follower has not been caught up; 0: it is. It takes a while to come back."""
    age = np.zeros(len(at_ms), dtype=np.int64)
    for episode in episodes:
        if episode.follower == follower:
            within = (at_ms >= episode.start_ms) & (at_ms < episode.end_ms)
            age = np.maximum(age, np.where(within, at_ms - episode.start_ms, 0))
    for absence in ABSENCES:
        if absence.broker == follower:
            within = (at_ms >= absence.start_ms) & (at_ms < absence.end_ms + CATCH_UP_MS)
            age = np.maximum(age, np.where(within, at_ms - absence.start_ms, 0))
    return age
