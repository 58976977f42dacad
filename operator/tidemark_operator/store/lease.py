"""Hold one Lease object, in both stores, and assign the controller epoch with it (S16).

The holder renews. A standby takes the Lease only when it *observed* no renewal for a whole duration
on its own clock (never by the written time, S21), when the holder released it, or when the holder
is known to be terminated (S19). A holder that has reason to doubt what it sees gives it away for a
term (S18). Every acquisition, also by the same identity, writes a controller epoch above every one
ever seen before anything is decided; one that turns out to be taken, because the Lease came from a
backup, is given up for a higher one. A holder stops leading by itself once most of the duration has
passed since it sent the last successful renewal. The Lease is about liveness: what keeps two
controllers from harm is the compare-and-set of every slice.

Reading everything that is stored may take longer than a Lease lasts, so the Lease is renewed while
its holder takes over; only the Lease's own calls have to be quick. So this runs on a loop that does
nothing else (lease_thread.py), and uses only `Leader` of its leader.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from tidemark_protocol.ids import NO_EPOCH, ControllerEpoch

from tidemark_operator.api.kinds import BROKER, LEASE, PARTITION_SLICE, Object
from tidemark_operator.store.object_store import ObjectStore, StoreError

logger = logging.getLogger(__name__)

CONTROLLER_EPOCH_ANNOTATION = "tidemark.dev/controller-epoch"
# On a released Lease: its holder, of this epoch, wants a second opinion (S18).
GIVEN_WAY_ANNOTATION = "tidemark.dev/given-way-by-epoch"
CONTROLLER_ADDRESS_ANNOTATION = "tidemark.dev/controller-address"


@dataclass(frozen=True, slots=True)
class LeaseSettings:
    namespace: str
    name: str = "tidemark-controller"
    duration_ms: int = 4000  # a standby waits this long for a renewal
    renew_interval_ms: int = 1000
    retry_interval_ms: int = 500
    # The holder stops by itself this long after it sent its last successful renewal: before any
    # standby's duration can have passed.
    give_up_after_ms: int = 3000
    # Who gave way does not take the Lease back before another did, or this long passed: then there
    # is nobody else, and the second opinion is its own.
    sit_out_ms: int = 2000
    # For reading what is stored: a store that is slower than this leaves it to another candidate.
    take_over_limit_ms: int = 60_000


class EpochTaken(StoreError):
    """An error: an object was written under that controller epoch, or a later one."""


class LeaseClock(Protocol):
    def now_ms(self) -> int:
        """Return CLOCK_BOOTTIME, which goes on while the machine is suspended (S21)."""
        ...

    def wall_time(self) -> str:
        """Return the time as RFC 3339 with microseconds, for people only."""
        ...


class Leader(Protocol):
    """The part that leads: `ControllerService`, or a wiring around it and the reconcilers."""

    @property
    def is_leading(self) -> bool: ...

    async def take_over(
        self, controller_epoch: ControllerEpoch, *, is_second_opinion: bool
    ) -> None:
        """Begin to lead in this controller epoch.

        Raises StoreError; EpochTaken before anything is decided, and from then on
        `highest_broker_controller_epoch` is at least what was found.
        """
        ...

    async def step_down(self) -> None: ...

    def depose(self) -> None:
        """Let no decision begin from now on, from any thread; `step_down` follows."""
        ...

    def set_leader_address(self, address: str) -> None: ...

    def highest_broker_controller_epoch(self) -> ControllerEpoch: ...

    def reason_to_give_way(self) -> str:
        """Return why another controller should lead for a term (S18), or ""."""
        ...


async def nobody_is_terminated(identity: str) -> bool:
    return False


class ControllerLease:
    def __init__(
        self,
        store: ObjectStore,
        identity: str,
        address: str,
        *,
        leader: Leader,
        clock: LeaseClock,
        settings: LeaseSettings,
        is_holder_terminated: Callable[[str], Awaitable[bool]] = nobody_is_terminated,
    ) -> None:
        """Create it without the Lease; `address` is host:port of this one's controller API."""
        self._store = store
        self._identity = identity
        self._address = address
        self._leader = leader
        self._clock = clock
        self._settings = settings
        self._is_holder_terminated = is_holder_terminated
        self._reported: Object | None = None  # the Lease as we last wrote it
        self._renewed_at_ms = 0
        self._observed_version = ""
        self._observed_at_ms = 0
        self._gave_way: tuple[ControllerEpoch, int] | None = None  # at which epoch, and when
        self._taking_over: asyncio.Task[None] | None = None  # the Lease is held meanwhile

    @property
    def is_held(self) -> bool:
        return self._reported is not None

    async def run(self) -> None:
        """Hold or wait for the Lease until cancelled; then step down and release it."""
        try:
            while True:
                pause_ms = await self.step()
                await asyncio.sleep(pause_ms / 1000)
        finally:
            self._leader.depose()
            self._leader.set_leader_address("")  # else a process that lingers names itself
            await self._stop_leading()
            await self.release()

    async def step(self) -> int:
        """Read or renew once; return the milliseconds until the next time. Never raises StoreError.

        While its leader takes over it waits for that as long as no renewal is due.
        """
        pause_ms = await self._read_or_renew()
        if self._taking_over is None:
            return pause_ms
        return await self._wait_for_take_over(self._taking_over, pause_ms)

    async def _read_or_renew(self) -> int:
        try:
            if self._reported is None:
                return await self._try_to_acquire()
            return await self._renew(self._reported)
        except (StoreError, TimeoutError) as error:
            logger.warning("lease not reachable", extra={"error": str(error)})
        if self._reported is not None and self._has_run_out():
            await self._lose("Lease not renewed in time")
        return self._settings.retry_interval_ms

    async def _wait_for_take_over(self, task: asyncio.Task[None], pause_ms: int) -> int:
        await asyncio.wait((task,), timeout=pause_ms / 1000)
        if not task.done():
            return 0
        self._taking_over = None
        try:
            task.result()
        except (StoreError, TimeoutError) as error:
            held = self._reported
            await self._lose(f"takeover failed: {error or 'timed out'}")
            await self._empty_holder(held)
            return 0 if isinstance(error, EpochTaken) else self._settings.retry_interval_ms
        return pause_ms

    def _in_time(self) -> asyncio.Timeout:
        """Return the time limit for calls of the Lease itself."""
        return asyncio.timeout(self._settings.give_up_after_ms / 1000)

    async def release(self) -> None:
        """Empty the holder; the epoch stays."""
        held, self._reported = self._reported, None
        await self._empty_holder(held)

    async def _empty_holder(self, held: Object | None) -> None:
        if held is None:
            return
        try:
            async with self._in_time():
                await self._store.replace(LEASE, self._lease(held, held["spec"], holder=""))
        except (StoreError, TimeoutError) as error:
            logger.warning("lease not released", extra={"error": str(error)})

    async def _try_to_acquire(self) -> int:
        now_ms = self._clock.now_ms()
        async with self._in_time():
            stored = await self._store.get(LEASE, self._settings.namespace, self._settings.name)
            if stored is not None:
                self._observe(stored, now_ms)
                if not await self._may_take(stored, now_ms):
                    return self._settings.retry_interval_ms
        async with asyncio.timeout(self._settings.take_over_limit_ms / 1000):
            epoch = await self._next_epoch(
                stored
            )  # a faster candidate changed the compared version
        spec = stored["spec"] if stored is not None else {}
        wanted = self._lease(
            stored, {**spec, "leaseTransitions": _transitions(stored) + 1}, self._identity, epoch
        )
        sent_at_ms = self._clock.now_ms()
        async with self._in_time():
            if stored is None:
                self._reported = await self._store.create(LEASE, wanted)
            else:
                self._reported = await self._store.replace(LEASE, wanted)
        self._renewed_at_ms = sent_at_ms
        logger.info("lease acquired", extra={"controller_epoch": epoch})
        self._leader.set_leader_address(self._address)
        self._taking_over = asyncio.create_task(
            self._take_over(epoch, is_second_opinion=_was_given_way(stored)), name="take over"
        )
        return self._settings.renew_interval_ms

    async def _take_over(self, epoch: ControllerEpoch, *, is_second_opinion: bool) -> None:
        async with asyncio.timeout(self._settings.take_over_limit_ms / 1000):
            await self._leader.take_over(epoch, is_second_opinion=is_second_opinion)

    async def _renew(self, held: Object) -> int:
        if self._has_run_out():
            await self._lose("Lease not renewed in time")
            return self._settings.retry_interval_ms
        is_superseded = self._taking_over is None and not self._leader.is_leading
        if is_superseded:  # it found a later controller's write
            await self._lose("deposed")
            return self._settings.retry_interval_ms
        if self._leader.highest_broker_controller_epoch() > _epoch_of(held):
            # Epochs started anew (a Lease and its objects deleted or restored) while brokers kept
            # theirs: they rightly refuse us. Acquired again, the epoch is above all of them (S16).
            await self._lose("a broker reported a later controller epoch")
            return 0
        if reason := self._leader.reason_to_give_way():
            await self._give_way(held, reason)
            return self._settings.retry_interval_ms
        sent_at_ms = self._clock.now_ms()
        # No longer: a successor counts from the last renewal that it saw, whatever we wait for.
        async with asyncio.timeout(self._remaining_ms() / 1000):
            stored, is_renewed = await self._renewed(held)
        if not self._is_ours(stored):
            await self._lose("another process holds the Lease")
            return self._settings.retry_interval_ms
        self._reported = stored
        if not is_renewed:
            return self._settings.retry_interval_ms
        self._renewed_at_ms = sent_at_ms
        return min(self._settings.renew_interval_ms, self._remaining_ms())

    async def _renewed(self, held: Object) -> tuple[Object | None, bool]:
        """Renew; return what is stored, and whether it is surely a renewal.

        A write may have happened without a response.
        """
        try:
            renewal = self._lease(held, held["spec"], self._identity)
            return await self._store.replace(LEASE, renewal), True
        except StoreError:
            settings = self._settings
            return await self._store.get(LEASE, settings.namespace, settings.name), False

    async def _give_way(self, held: Object, reason: str) -> None:
        """Give the Lease away (S18); if the write fails, a standby waits for a whole duration."""
        epoch = ControllerEpoch(_epoch_of(held))
        self._gave_way = (epoch, self._clock.now_ms())
        await self._lose(f"stepping down: {reason}")
        wanted = self._lease(held, held["spec"], holder="")
        wanted["metadata"]["annotations"][GIVEN_WAY_ANNOTATION] = str(epoch)
        try:
            async with self._in_time():
                await self._store.replace(LEASE, wanted)
        except (StoreError, TimeoutError) as error:
            logger.warning("lease not released", extra={"error": str(error)})

    # guard: stepped-down-controller-waits (S18)
    def _sits_out(self, stored: Object, now_ms: int) -> bool:
        """Return whether this one lets another have the next term, if there is another (S18)."""
        if self._gave_way is None:
            return False
        epoch, since_ms = self._gave_way
        if _epoch_of(stored) == epoch and now_ms - since_ms < self._settings.sit_out_ms:
            return True
        self._gave_way = None
        return False

    def _observe(self, stored: Object, now_ms: int) -> None:
        """Record a renewal: a new resource version that this one has seen."""
        version = stored["metadata"]["resourceVersion"]
        if version != self._observed_version:
            self._observed_version = version
            self._observed_at_ms = now_ms
        annotations = stored["metadata"].get("annotations", {})
        if stored["spec"].get("holderIdentity"):
            self._leader.set_leader_address(annotations.get(CONTROLLER_ADDRESS_ANNOTATION, ""))

    async def _may_take(self, stored: Object, now_ms: int) -> bool:
        if self._sits_out(stored, now_ms):
            return False
        holder = stored["spec"].get("holderIdentity") or ""
        if not holder or holder == self._identity:
            return True  # released, or our own former life
        if now_ms - self._observed_at_ms >= self._settings.duration_ms:
            return True
        return await self._is_holder_terminated(holder)

    # guard: controller-epoch-above-all-stored (S16)
    async def _next_epoch(self, stored: Object | None) -> ControllerEpoch:
        """Return 1 + the highest epoch ever seen (S16).

        An existing Lease has seen them all, unless it was restored: its leader, which reads
        everything next, finds that (EpochTaken).
        """
        highest = self._leader.highest_broker_controller_epoch()
        seen = [0, _transitions(stored), highest]
        lease_epoch = NO_EPOCH if stored is None else _epoch_of(stored)
        if lease_epoch == NO_EPOCH:
            brokers = await self._store.list(BROKER, None)
            slices = await self._store.list(PARTITION_SLICE, None)
            seen.append(highest_stored_epoch(brokers, slices))
        return ControllerEpoch(1 + max(*seen, lease_epoch))

    def _lease(
        self,
        base: Object | None,
        spec: Object,
        holder: str,
        epoch: ControllerEpoch | None = None,
    ) -> Object:
        metadata = dict(base["metadata"]) if base is not None else {}
        metadata.update(namespace=self._settings.namespace, name=self._settings.name)
        annotations = dict(metadata.get("annotations", {}))
        if epoch is not None:
            annotations.pop(GIVEN_WAY_ANNOTATION, None)
            annotations[CONTROLLER_EPOCH_ANNOTATION] = str(epoch)
            annotations[CONTROLLER_ADDRESS_ANNOTATION] = self._address
        metadata["annotations"] = annotations
        wall_time = self._clock.wall_time()
        times = {"renewTime": wall_time}
        if epoch is not None:
            times["acquireTime"] = wall_time
        return {
            "apiVersion": LEASE.api_version,
            "kind": LEASE.kind,
            "metadata": metadata,
            "spec": {
                **spec,
                **times,
                "holderIdentity": holder,
                "leaseDurationSeconds": -(-self._settings.duration_ms // 1000),
            },
        }

    # guard: lease-is-held (I16)
    def _is_ours(self, stored: Object | None) -> bool:
        return (
            stored is not None
            and self._reported is not None
            and stored["spec"].get("holderIdentity") == self._identity
            and _epoch_of(stored) == _epoch_of(self._reported)
        )

    def _has_run_out(self) -> bool:
        return self._remaining_ms() == 0

    def _remaining_ms(self) -> int:
        runs_out_at_ms = self._renewed_at_ms + self._settings.give_up_after_ms
        return max(0, runs_out_at_ms - self._clock.now_ms())

    async def _lose(self, reason: str) -> None:
        logger.warning("leadership lost", extra={"reason": reason})
        self._reported = None
        self._observed_version = ""
        self._leader.depose()  # its loop may be busy: stepping down waits for that
        self._leader.set_leader_address("")
        await self._stop_leading()

    async def _stop_leading(self) -> None:
        """Step down, also from an unfinished takeover."""
        task, self._taking_over = self._taking_over, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await self._leader.step_down()


def highest_stored_epoch(brokers: Iterable[Object], slices: Iterable[Object]) -> ControllerEpoch:
    """Return the highest controller epoch of these objects, or -1."""
    of_brokers = (item.get("status", {}).get("controllerEpoch", NO_EPOCH) for item in brokers)
    of_slices = (item.get("controllerEpoch", NO_EPOCH) for item in slices)
    return ControllerEpoch(max(map(int, (*of_brokers, *of_slices)), default=NO_EPOCH))


def _transitions(stored: Object | None) -> int:
    return int(stored["spec"].get("leaseTransitions") or 0) if stored is not None else 0


def _was_given_way(stored: Object | None) -> bool:
    annotations = stored["metadata"].get("annotations", {}) if stored is not None else {}
    return GIVEN_WAY_ANNOTATION in annotations


def _epoch_of(stored: Object) -> int:
    text = stored["metadata"].get("annotations", {}).get(CONTROLLER_EPOCH_ANNOTATION, "")
    return int(text) if text.isdecimal() else NO_EPOCH
