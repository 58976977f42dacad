"""The end of a process whose disk failed (S8).

A failed fsync may have dropped pages that the kernel now calls clean; the next process on the same
kernel would find a log that looks whole. So this one does not end before the controller stored that
its storage failed, or the boot stamp is off the volume: either makes the next start unclean. Both
are tried at once and go on being tried. Neither is there yet if a kill comes before: what the disk
may lack the next life writes again whatever it finds (`storage.rewriting`).
"""

import asyncio
import logging

from tidemark_broker.runtime.controller_session import ControllerSession
from tidemark_broker.storage.errors import StorageError
from tidemark_broker.storage.log_directory import LogDirectory

# The controller's record is the better end: it also fences us. So long it is waited for alone.
RECORD_LIMIT_SECONDS = 5.0
REMOVAL_RETRY_SECONDS = 0.5

_log = logging.getLogger(__name__)


async def void_proofs(
    session: ControllerSession,
    directory: LogDirectory,
    *,
    record_limit_seconds: float = RECORD_LIMIT_SECONDS,
) -> None:
    """`session` is polling. Returns once no later start can be taken for clean."""
    session.fail_storage()
    removal = asyncio.create_task(remove_stamp(directory), name="boot-stamp-removal")
    record = asyncio.create_task(session.proofs_are_void.wait(), name="failure-record")
    try:
        await asyncio.wait((record,), timeout=record_limit_seconds)
        await asyncio.wait((record, removal), return_when=asyncio.FIRST_COMPLETED)
        _log.info(
            "proofs voided", extra={"recorded": record.done(), "stamp_removed": removal.done()}
        )
    finally:
        removal.cancel()
        record.cancel()


async def remove_stamp(directory: LogDirectory) -> None:
    """Until it is gone: no limit, as an end before that could be taken for a mere kill."""
    while True:
        try:
            await asyncio.to_thread(directory.remove_boot_stamp)
        except StorageError as error:
            _log.error("boot stamp not removed yet", extra={"reason": str(error)})
            await asyncio.sleep(REMOVAL_RETRY_SECONDS)
        else:
            return
