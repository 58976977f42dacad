"""Fill, slow or break the volumes of local brokers, and heal them.

A broken volume is mounted again when its fault ends. The broker has ended by itself then, or is
ended: a process that keeps files open would keep the broken one.
"""

import asyncio
import os
import signal
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress

from tidemark_client.errors import CommandFailed

from tidemark_chaos.environments.chaos_environment import Tell
from tidemark_chaos.environments.volumes import Volume, VolumeError, thaw
from tidemark_chaos.faults.link_faults import names
from tidemark_chaos.heal_journal import HealJournal
from tidemark_chaos.schedule import PlannedFault
from tidemark_chaos.spec import FaultName

REPLACE_SECONDS = 20.0
POLL_SECONDS = 0.05


class DiskFaults:
    def __init__(
        self,
        volumes: Mapping[int, Volume],
        journal: HealJournal,
        pid_of: Callable[[int], Awaitable[int | None]],
    ) -> None:
        self._volumes = volumes
        self._journal = journal
        self._pid_of = pid_of
        self._full: dict[int, Volume] = {}  # by broker
        self._slow: dict[int, threading.Event] = {}  # by broker: set to end it

    async def strike(
        self, fault: PlannedFault, brokers: tuple[int, ...], on_begin: Tell, on_heal: Tell
    ) -> None:
        """Do a disk fault to the end, its healing included. Raises CommandFailed."""
        try:
            match fault.kind:
                case FaultName.DISK_FULL:
                    await self._fill(fault, brokers, on_begin, on_heal)
                case FaultName.DISK_SLOW:
                    await self._slow_down(fault, brokers, on_begin, on_heal)
                case _:
                    await self._break(fault, brokers, on_begin, on_heal)
        except VolumeError as error:
            raise CommandFailed(
                expected=f"{fault.kind} of {names(brokers)}",
                found=str(error),
                to_do="see the kernel's log (dmesg)",
            ) from error

    def heal(self) -> list[str]:
        """Empty full volumes, end slow ones, and return whose they are.

        A broken one is mounted again where its fault is ended.
        """
        healed = [f"the volume of broker {broker}" for broker in (*self._full, *self._slow)]
        for broker in tuple(self._full):
            self._empty(broker)
        for broker, stop in self._slow.items():
            stop.set()
            thaw(self._volumes[broker].path)
        return healed

    async def _fill(
        self, fault: PlannedFault, brokers: tuple[int, ...], on_begin: Tell, on_heal: Tell
    ) -> None:
        try:
            t_ms = _now_ms()
            for broker in brokers:
                volume = self._volumes[broker]
                self._journal.add_path("delete", volume.ballast, f"ballast of broker {broker}")
                self._full[broker] = volume
                await asyncio.to_thread(volume.fill)
            on_begin(t_ms, f"no space on the disk of {names(brokers)} for {fault.for_seconds:g} s")
            await asyncio.sleep(fault.for_seconds)
        finally:
            t_ms = _now_ms()
            for broker in brokers:
                self._empty(broker)
            on_heal(t_ms, f"the disk of {names(brokers)} has space again")

    def _empty(self, broker: int) -> None:
        volume = self._full.pop(broker, None)
        if volume is not None:
            volume.empty()
            self._journal.remove_path("delete", volume.ballast)

    async def _slow_down(
        self, fault: PlannedFault, brokers: tuple[int, ...], on_begin: Tell, on_heal: Tell
    ) -> None:
        slowing = []
        try:
            t_ms = _now_ms()
            for broker in brokers:
                volume, stop = self._volumes[broker], threading.Event()
                self._journal.add_path("thaw", volume.path, f"the volume of broker {broker}")
                self._slow[broker] = stop
                work = asyncio.to_thread(volume.slow, fault.delay_seconds, stop)
                slowing.append(asyncio.create_task(work, name=f"slow-disk-{broker}"))
            text = f"writes of {names(brokers)} wait up to {fault.delay_seconds:g} s for the disk"
            on_begin(t_ms, f"{text}, for {fault.for_seconds:g} s")
            await asyncio.wait(
                slowing, timeout=fault.for_seconds, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            for broker in brokers:
                if (found := self._slow.get(broker)) is not None:
                    found.set()
            t_ms = _now_ms()
            ended = await asyncio.gather(*slowing, return_exceptions=True)
            for broker in brokers:
                if self._slow.pop(broker, None) is not None:
                    self._journal.remove_path("thaw", self._volumes[broker].path)
            on_heal(t_ms, f"the disk of {names(brokers)} is fast again")
        for failed in ended:
            if isinstance(failed, BaseException):
                raise failed

    async def _break(
        self, fault: PlannedFault, brokers: tuple[int, ...], on_begin: Tell, on_heal: Tell
    ) -> None:
        broken = []
        try:
            t_ms = _now_ms()
            for broker in brokers:
                broken.append(broker)
                await asyncio.to_thread(self._volumes[broker].break_down)
            on_begin(
                t_ms, f"I/O errors on the disk of {names(brokers)} for {fault.for_seconds:g} s"
            )
            await asyncio.sleep(fault.for_seconds)
        finally:
            # Shielded: a volume that is not mounted again could not be unmounted at the end.
            await asyncio.shield(asyncio.gather(*map(self._replace, broken)))
            on_heal(_now_ms(), f"the disk of {names(brokers)} is mounted again")

    async def _replace(self, broker: int) -> None:
        """End the processes that use a broken volume and mount it again. Raises VolumeError."""
        loop = asyncio.get_running_loop()
        ends = loop.time() + REPLACE_SECONDS
        while True:
            if (pid := await self._pid_of(broker)) is not None:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            try:
                await asyncio.to_thread(self._volumes[broker].replace)
                return
            except VolumeError:
                if loop.time() > ends:
                    raise
            await asyncio.sleep(POLL_SECONDS)


def _now_ms() -> float:
    return time.time() * 1000
