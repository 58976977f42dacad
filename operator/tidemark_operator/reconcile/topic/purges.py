"""Delete retained data permanently where spec.purgeRetained of the BrokerPool names it.

A name is processed once: its result is recorded in the status, and stands until the name is removed
from the list. So a name that stays in a manifest does not apply to a later topic. Data is deleted
only if each slice says that it is retained and no Topic object has or will adopt it, by live reads
(S12); if in doubt nothing is done, and the next turn checks again.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import Enum

from tidemark_operator.api.broker_pool import BrokerPool, PurgeStatus
from tidemark_operator.api.kinds import TOPIC
from tidemark_operator.controller.core.views import TopicView
from tidemark_operator.controller.service import ControllerService
from tidemark_operator.reconcile.conditions import Condition
from tidemark_operator.reconcile.object_index import TopicEntry, topic_entry
from tidemark_operator.reconcile.retained_data import shortened
from tidemark_operator.reconcile.topic.deleted_topics import TopicNames
from tidemark_operator.reconcile.topic.observe import TopicObserver
from tidemark_operator.reconcile.topic.slice_owners import SliceOwner
from tidemark_operator.store.object_store import ObjectStore

log = logging.getLogger(__name__)

MAX_PURGES_PER_TURN = 10  # brokers that have to start wait for the end of the turn
MAX_NAMED = 5


class PurgeResult(Enum):
    PURGED = "Purged"
    NOTHING_RETAINED = "NothingRetained"
    HAS_TOPIC = "HasTopic"


@dataclass(slots=True)
class Purges:
    """The result of each name of spec.purgeRetained, as far as known."""

    results: dict[str, str] = field(default_factory=dict)  # values of PurgeResult
    waiting: list[str] = field(default_factory=list)  # deleted topics that are not retained yet
    has_change: bool = False

    @property
    def status(self) -> tuple[PurgeStatus, ...]:
        return tuple(
            PurgeStatus(topic_name=name, result=each) for name, each in self.results.items()
        )

    def conditions(self) -> Iterator[Condition]:
        if not self.results and not self.waiting:
            return
        refused = self._named(PurgeResult.HAS_TOPIC)
        sentences = []
        if refused:
            sentences.append(
                "not purged, because a Topic object has the name:"
                f" {shortened(refused, MAX_NAMED)}. To purge it, delete the Topic, remove the"
                " name from spec.purgeRetained and add it again"
            )
        if self.waiting:
            sentences.append(f"waiting for the deletion of {shortened(self.waiting, MAX_NAMED)}")
        if purged := self._named(PurgeResult.PURGED):
            sentences.append(f"purged: {shortened(purged, MAX_NAMED)}")
        if nothing := self._named(PurgeResult.NOTHING_RETAINED):
            sentences.append(f"no retained data: {shortened(nothing, MAX_NAMED)}")
        reason = "HasTopic" if refused else "Waiting" if self.waiting else "Done"
        yield Condition("Purged", reason == "Done", reason, "; ".join(sentences))

    def _named(self, result: PurgeResult) -> list[str]:
        return [name for name, each in self.results.items() if each == result.value]


def read_purges(pool: BrokerPool) -> Purges:
    """Read the recorded results; those of other names are dropped."""
    recorded = {each.topic_name: each.result for each in pool.status.purge_retained or ()}
    results = {name: recorded[name] for name in pool.spec.purge_retained if name in recorded}
    return Purges(results, has_change=results.keys() != recorded.keys())


class RetainedPurges:
    def __init__(
        self,
        store: ObjectStore,
        controller: ControllerService,
        observer: TopicObserver,
        names: TopicNames,
    ) -> None:
        """Create it; `names` is held while the data of a topicName is given or taken."""
        self._store = store
        self._controller = controller
        self._observer = observer
        self._names = names

    async def carry_out(self, pool: BrokerPool, purges: Purges) -> None:
        """Complete `purges`, name by name; what is done is in it, whatever is raised."""
        requested = [name for name in pool.spec.purge_retained if name not in purges.results]
        if not requested:
            return
        purges.waiting = requested.copy()
        # Topics that are made after this was read are found by their own objects, and the index.
        topics = [topic_entry(each) for each in await self._store.list(TOPIC, pool.namespace)]
        purged = 0
        for name in requested:
            async with self._names.hold((pool.pool, name)):
                result = await self._purge(pool, name, topics)
            if result is not None:
                purges.results[name] = result.value
                purges.waiting.remove(name)
                purges.has_change = True
            purged += result is PurgeResult.PURGED
            if purged == MAX_PURGES_PER_TURN:
                return

    async def _purge(
        self, pool: BrokerPool, name: str, topics: list[TopicEntry]
    ) -> PurgeResult | None:
        """Purge a name; None if that cannot be decided yet."""
        views = self._controller.topics_named(pool.pool, name)
        if not views:
            return PurgeResult.NOTHING_RETAINED
        found = [await self._retained(pool, view) for view in views]
        claims = [entry for entry in topics if any(entry.claims(owner) for owner in found)]
        if claims:
            are_going = all(entry.is_going for entry in claims)
            return None if are_going else PurgeResult.HAS_TOPIC
        for kept in found:
            # Lists and the index may lag: also by reads of the very objects.
            if not kept.is_retained or not await self._observer.is_abandoned(kept):
                return None
        for kept in found:
            log.info(
                "retained data purged",
                extra={"pool": pool.pool, "topic": name, "topic_id": kept.topic_id},
            )
            await self._controller.delete_topic(pool.pool, kept.topic_id, retain=False, topic=name)
        return PurgeResult.PURGED

    async def _retained(self, pool: BrokerPool, view: TopicView) -> SliceOwner:
        """Return the owner by the existing slices, or by the controller if all are lost."""
        topic = view.topic
        for kept in await self._observer.kept(pool.namespace, topic.topic_id):
            return replace(kept, is_retained=kept.is_retained and view.is_retained)
        return SliceOwner(
            pool=pool.pool,
            topic_id=topic.topic_id,
            topic_name=topic.topic,
            object_name=view.object_name,
            deletion_policy=view.deletion_policy,
            is_retained=view.is_retained,
        )
