"""What members of simulated groups were told, held against each other.

G1: an offset whose commit was acknowledged is there for whoever asks later, or a later one: of a
    later generation, or further on in the same one. A member of a former generation may hear from
    its former coordinator, which was frozen and does not know of the later one, what was committed
    there: it reads again, and commits nothing (G3). So may a member of the same one that went back
    to a former coordinator, cut off from all but it.
G2: a partition has one owner in a generation.
G3: a member of a former generation commits nothing any more, once a later one has committed.
G4: after the last fault the group finds together and commits again (a promise, within a bound).

Each commit carries its generation in its metadata, so that who fetches sees whose it is. Where the
log itself may have lost something with everybody's leave (elections by the longest log, unclean
ones) a group is not judged any more. A deleted topic takes its offsets with it, whenever the
coordinator hears of it: from then on nothing need be there (G1).
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.simulation.checks.violations import Violation

Mark = tuple[int, int]  # (generation, offset): the order of commits of one partition
NOTHING: Mark = (-1, -1)


def metadata_of(generation_id: int) -> str:
    return f"generation {generation_id}"


def mark_of(offset: int, metadata: str) -> Mark:
    return NOTHING if offset < 0 else (int(metadata.rpartition(" ")[2]), offset)


@dataclass
class GroupChecks:
    group_id: str
    partitions: tuple[int, ...]
    is_excused: Callable[[], bool]
    may_forget: Callable[[], bool]
    coordinates: Callable[[int], bool]  # that broker, as is stored
    coverage: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._acknowledged: dict[int, Mark] = {}
        self._owners: dict[tuple[int, int], str] = {}  # (generation, partition) -> member
        self._held: dict[str, tuple[int, tuple[int, ...]]] = {}  # now: generation, partitions
        self._committed_since_healing: dict[int, None] = {}
        self._is_healed = False
        self.violation: Violation | None = None

    def _violate(self, name: str, text: str) -> None:
        if self.violation is None and not self.is_excused():
            self.violation = Violation(name, f"group {self.group_id}: {text}")

    # ---- what members say

    def acknowledged(self, partition: int) -> Mark:
        """Take it before asking; give it to `on_fetched` and `on_committed`."""
        return self._acknowledged.get(partition, NOTHING)

    def on_assigned(self, member: str, generation_id: int, partitions: tuple[int, ...]) -> None:
        self.coverage["group: assigned"] += 1
        self._held[member] = (generation_id, partitions)
        for partition in partitions:
            owner = self._owners.setdefault((generation_id, partition), member)
            if owner != member:
                self._violate(
                    "G2",
                    f"partition {partition} belongs to {owner} and {member} in generation"
                    f" {generation_id}",
                )

    def on_left(self, member: str) -> None:
        self._held.pop(member, None)

    def on_fetched(
        self, partition: int, before: Mark, found: Mark, generation_id: int, *, by: int
    ) -> None:
        """`by`: the broker that answered."""
        self.coverage["group: fetched"] += 1
        if found >= before:
            return
        is_previous = generation_id == before[0] and not self.coordinates(by)
        if generation_id < before[0] or is_previous:
            self.coverage["group: fetched by a member of a former generation"] += 1
        elif not self.may_forget():
            self._violate(
                "G1",
                f"partition {partition}: committed was (generation, offset) {before}, fetched"
                f" later is {found}",
            )

    def on_committed(self, partition: int, before: Mark, mark: Mark) -> None:
        self.coverage["group: committed"] += 1
        if before[0] > mark[0]:
            self._violate(
                "G3",
                f"partition {partition}: {mark} was taken, {before} had been acknowledged before",
            )
        self._acknowledged[partition] = max(mark, self.acknowledged(partition))
        if self._is_healed:
            self._committed_since_healing[partition] = None

    # ---- the end

    def heal(self) -> None:
        self._is_healed = True

    def missing(self) -> str:
        """What G4 still waits for; "" if nothing."""
        newest = max((generation for generation, _ in self._held.values()), default=-1)
        held = [
            partition
            for generation, partitions in self._held.values()
            if generation == newest
            for partition in partitions
        ]
        if sorted(held) != sorted(self.partitions):
            return f"generation {newest} holds {sorted(held)} of {self.partitions}"
        waiting = [p for p in self.partitions if p not in self._committed_since_healing]
        return f"no commit yet for {waiting}" if waiting else ""
