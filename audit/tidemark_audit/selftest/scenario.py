"""Generate one cluster's history: faults, and events that only look like faults.

A scenario is six slots of an hour; what begins in a slot ends in it. For each partition it keeps
the history of its true states, and beside it what a monitor would latch or miscount.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from random import Random

HOUR_MS = 3_600_000
SLOTS = 6
LENGTH_MS = SLOTS * HOUR_MS
BROKERS = (1, 2, 3, 4)
PARTITIONS = 3
MIN_ISR = 2
FENCED_AFTER_MS = 4000  # a dead broker's session, and the election that follows
BACK_AFTER_MS = 8000  # from start to in sync
HANDOVER_MS = 23_457  # now before a broker's scrape, now after it
RATE = 20  # records per second of each partition
FAULTS = (
    "quiet", "crash", "long crash", "two crashes", "unclean", "watermark back", "digest",
    "lagging", "flapping", "two leaders", "epoch back", "blind", "clock",
)  # fmt: skip
TRAPS = (
    "planned", "long planned", "short blindness", "counter reset", "topic again", "pair", "idle",
    "move", "renamed pod", "operator change", "old loss", "late watermark",
    "failed scrape", "new address", "two pools", "phased handover", "late exporter",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ExpectedFacts:
    """Hold a partition's state from `at_ms` on; offsets grow by RATE while it is led."""

    at_ms: int
    leader: int | None
    epoch: int
    start_offset: int
    in_sync: frozenset[int]
    end_offset: int

    def end_at(self, at_ms: int) -> int:
        return self.end_offset + (0 if self.leader is None else (at_ms - self.at_ms) * RATE // 1000)


@dataclass(frozen=True, slots=True)
class Absence:
    broker: int
    start_ms: int
    end_ms: int
    planned: bool = False


@dataclass(frozen=True, slots=True)
class Loss:
    """`records` committed ones are gone; `shown` says which counters tell of it, beside gauges."""

    partition: int
    at_ms: int
    records: int
    shown: frozenset[str]
    old_leader: int
    new_leader: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Episode:
    """Something about one partition and one broker for a while."""

    kind: str
    partition: int
    broker: int
    start_ms: int
    end_ms: int
    size: int = 0


@dataclass(slots=True)
class Scenario:
    number: int
    names: list[str] = field(default_factory=list)
    absences: list[Absence] = field(default_factory=list)
    losses: list[Loss] = field(default_factory=list)
    episodes: list[Episode] = field(default_factory=list)
    announced: list[Absence] = field(default_factory=list)  # for which no broker was absent
    blind: list[tuple[int, int]] = field(default_factory=list)  # no scrapes at all
    histories: list[list[ExpectedFacts]] = field(default_factory=list)
    unplanned_moves: list[int] = field(default_factory=list)  # of each partition

    @property
    def cluster(self) -> str:
        return f"s{self.number:04d}"

    @property
    def topic(self) -> str:
        return f"topic{self.number:04d}"

    def has(self, kind: str) -> bool:
        return kind in self.names

    def episodes_of(self, kind: str) -> list[Episode]:
        return [episode for episode in self.episodes if episode.kind == kind]


def replicas(partition: int) -> tuple[int, ...]:
    return tuple(BROKERS[(partition + place) % len(BROKERS)] for place in range(3))


def scenario(number: int, random: Random) -> Scenario:
    """Draw a scenario of some faults among traps, a slot each."""
    names = random.sample(FAULTS, random.choice((0, 1, 1, 2, 3)))
    names += random.sample(TRAPS, SLOTS - len(names))
    random.shuffle(names)
    return reported(number, names, random)


def reported(number: int, names: Sequence[str], random: Random) -> Scenario:
    """Return the scenario of these faults and traps, in their order."""
    story = Scenario(number, list(names))
    partitions = [_Partition(place) for place in range(PARTITIONS)]
    for slot, name in enumerate(names):
        start = slot * HOUR_MS + random.randrange(120_000, 600_000)
        _begin(story, partitions, name, start, random)
    for partition in partitions:
        if partition.unclean is not None:
            story.absences.append(
                _fall_of_the_leader(story, partition.number, partition.unclean[0])
            )
    for partition in partitions:
        partition.play(story)
        story.histories.append(partition.history)
        story.unplanned_moves.append(partition.unplanned_moves)
    return story


def _begin(
    story: Scenario, partitions: list["_Partition"], name: str, start: int, random: Random
) -> None:
    broker, place = random.choice(BROKERS), random.randrange(PARTITIONS)
    follower = random.choice(replicas(place))
    planned = ("planned", "long planned")
    lengths = {
        "crash": (330_000, 540_000), "long crash": (700_000, 1_200_000),
        "two crashes": (330_000, 540_000), "planned": (25_000, 40_000),
        "long planned": (560_000, 580_000),
    }  # fmt: skip
    if name in lengths:
        end = start + random.randrange(*lengths[name])
        story.absences.append(Absence(broker, start, end, planned=name in planned))
        if name == "two crashes":
            other = random.choice([each for each in BROKERS if each != broker])
            story.absences.append(Absence(other, start + 30_000, end + 30_000))
    elif name == "unclean":
        shown = frozenset(random.sample(("gap", "truncation", "recovery"), random.randint(1, 3)))
        partitions[place].unclean = (start, random.randrange(2000, 5000), shown)
    elif name == "flapping":
        for turn in range(3):
            at = start + turn * 200_000
            story.episodes.append(Episode(name, place, follower, at, at + 155_000))
    elif name == "blind":
        story.blind.append((start, start + 600_000))
    elif name == "short blindness":
        story.blind.append((start, start + 45_000))
    else:
        length = 1_500_000 if name == "lagging" else 120_000
        size = random.randrange(500, 3000)
        story.episodes.append(Episode(name, place, follower, start, start + length, size))


def _fall_of_the_leader(story: Scenario, number: int, at_ms: int) -> Absence:
    """Whoever leads by then, after all that happened before."""
    rehearsal = _Partition(number)
    rehearsal.play(story, until_ms=at_ms)
    leader = rehearsal.history[-1].leader
    assert leader is not None, "faults of two slots overlap"
    return Absence(leader, at_ms, at_ms + 400_000)


class _Partition:
    """Plays the events of one partition in order."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.unclean: tuple[int, int, frozenset[str]] | None = None
        self.history = [
            ExpectedFacts(0, replicas(number)[0], 5, 0, frozenset(replicas(number)), 10_000)
        ]
        self.unplanned_moves = 0
        self._up = set(BROKERS)

    def play(self, story: Scenario, *, until_ms: int = LENGTH_MS) -> None:
        for at_ms, kind, broker in sorted(self._events(story)):
            if at_ms < until_ms:
                self._apply(story, at_ms, kind, broker)

    def _events(self, story: Scenario) -> Iterator[tuple[int, str, int]]:
        mine = replicas(self.number)
        for absence in story.absences:
            if absence.broker not in mine:
                continue
            if absence.planned:
                yield absence.start_ms - 300, "step down", absence.broker
            else:
                yield absence.start_ms, "die", absence.broker
                yield absence.start_ms + FENCED_AFTER_MS, "fence", absence.broker
            yield absence.end_ms + BACK_AFTER_MS, "back", absence.broker
        for episode in story.episodes_of("flapping"):
            if episode.partition == self.number:
                yield episode.start_ms, "shrink", episode.broker
                yield episode.end_ms, "back", episode.broker
        for episode in story.episodes_of("phased handover"):
            if episode.partition == self.number:
                for at_ms in range(episode.start_ms, episode.end_ms, HANDOVER_MS):
                    yield at_ms, "hand over", episode.broker

    def _apply(self, story: Scenario, at_ms: int, kind: str, broker: int) -> None:
        now = self.history[-1]
        leader, in_sync = now.leader, now.in_sync
        if kind == "die":
            self._up.discard(broker)
            if leader == broker:
                self._enter(at_ms, None, now.epoch, now.start_offset, in_sync)
        elif kind == "hand over" and leader is not None:
            new = min(in_sync - {leader})
            end = now.end_at(at_ms)
            self.history.append(ExpectedFacts(at_ms, new, now.epoch + 1, end, in_sync, end))
        elif kind == "shrink":
            if leader != broker:
                self._enter(at_ms, leader, now.epoch, now.start_offset, in_sync - {broker})
        elif kind in ("fence", "step down"):
            self._up.discard(broker)
            left = in_sync - {broker}
            if leader in (None, broker):
                self._elect(story, at_ms, broker, left, planned=kind == "step down")
            else:
                self._enter(at_ms, leader, now.epoch, now.start_offset, left)
        else:
            self._up.add(broker)
            self._enter(at_ms, leader, now.epoch, now.start_offset, in_sync | {broker})

    def _elect(
        self, story: Scenario, at_ms: int, old: int, left: frozenset[int], *, planned: bool
    ) -> None:
        now = self.history[-1]
        end = now.end_at(at_ms)
        new = min(left)
        unclean = self.unclean
        if unclean is not None and at_ms == unclean[0] + FENCED_AFTER_MS:
            end -= unclean[1]
            story.losses.append(
                Loss(self.number, at_ms, unclean[1], unclean[2], old, new, now.epoch + 1)
            )
        self.unplanned_moves += not planned
        self.history.append(ExpectedFacts(at_ms, new, now.epoch + 1, end, left, end))

    def _enter(
        self, at_ms: int, leader: int | None, epoch: int, start: int, in_sync: frozenset[int]
    ) -> None:
        now = self.history[-1]
        self.history.append(ExpectedFacts(at_ms, leader, epoch, start, in_sync, now.end_at(at_ms)))
