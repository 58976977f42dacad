"""Write to SQLite in a thread, where all waiting writes are one transaction.

A commit costs a sync of the disk, an additional write a fraction of that; so what comes while one
commit runs is part of the next. Each write checks and changes by itself: one that is rejected
leaves the others of its transaction alone. Nothing is answered before the commit returned.
"""

import asyncio
import sqlite3
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass

from tidemark_operator.api.kinds import Object
from tidemark_operator.store.object_store import StoreError

WRITES_AT_ONCE = 256  # of one commit: the first does not wait long for the last


class Transaction:
    """The changes of one commit. Used in the writing thread alone."""

    def __init__(self, connection: sqlite3.Connection, version: int) -> None:
        self._connection = connection
        self.version = version  # of the newest write
        self.has_written = False

    def next_version(self) -> int:
        return self.version + 1

    def row(self, sql: str, arguments: tuple[object, ...]) -> tuple[object, ...] | None:
        found: tuple[object, ...] | None = self._connection.execute(sql, arguments).fetchone()
        return found

    def write(self, *statements: tuple[str, tuple[object, ...]]) -> None:
        """Do one write, under the next version."""
        self.has_written = True
        self.version += 1
        for sql, arguments in statements:
            self._connection.execute(sql, arguments)


# Raises StoreError before it has written anything.
Work = Callable[[Transaction], Object | None]
_Outcome = Object | None | StoreError


@dataclass(frozen=True, slots=True)
class _Waiting:
    work: Work
    outcome: asyncio.Future[Object | None]


class SqliteWrites:
    def __init__(
        self,
        connection: sqlite3.Connection,
        executor: Executor,
        *,
        on_change: Callable[[], None],
    ) -> None:
        """Create it; only it uses `connection`, and `executor` has one thread."""
        self._connection = connection
        self._executor = executor
        self._on_change = on_change
        self._waiting: deque[_Waiting] = deque()
        self._is_due = False  # a commit is under way, or begins at once

    async def run(self, work: Work) -> Object | None:
        """Return once the work is stored; if cancelled, it may be stored all the same."""
        loop = asyncio.get_running_loop()
        waiting = _Waiting(work, loop.create_future())
        self._waiting.append(waiting)
        if not self._is_due:
            self._is_due = True
            loop.call_soon(self._begin)  # with what others are about to write
        return await waiting.outcome

    def _begin(self) -> None:
        taken: list[_Waiting] = []
        while self._waiting and len(taken) < WRITES_AT_ONCE:
            waiting = self._waiting.popleft()
            if not waiting.outcome.done():
                taken.append(waiting)
        self._is_due = bool(taken)
        if not taken:
            return
        loop = asyncio.get_running_loop()
        committing = loop.run_in_executor(
            self._executor, self._commit, [waiting.work for waiting in taken]
        )
        committing.add_done_callback(lambda done: self._end(taken, done))

    def _end(self, taken: list[_Waiting], done: "asyncio.Future[list[_Outcome]]") -> None:
        for waiting, outcome in zip(taken, _outcomes(done, len(taken)), strict=True):
            if waiting.outcome.done():
                continue
            if isinstance(outcome, BaseException):
                waiting.outcome.set_exception(outcome)
            else:
                waiting.outcome.set_result(outcome)
        self._on_change()
        self._begin()

    def _commit(self, works: list[Work]) -> list[_Outcome]:
        """Commit the works, in the writing thread."""
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            version = self._connection.execute("SELECT value FROM counter").fetchone()[0]
            transaction = Transaction(self._connection, version)
            outcomes = [_outcome(work, transaction) for work in works]
            if transaction.has_written:
                self._connection.execute("UPDATE counter SET value = ?", (transaction.version,))
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            self._roll_back()
            return [StoreError(f"SQLite store: {error}") for _ in works]
        except BaseException:
            self._roll_back()
            raise
        return outcomes

    def _roll_back(self) -> None:
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")


def _outcome(work: Work, transaction: Transaction) -> _Outcome:
    try:
        return work(transaction)
    except StoreError as error:
        return error


def _outcomes(
    done: "asyncio.Future[list[_Outcome]]", count: int
) -> Sequence[_Outcome | BaseException]:
    if done.cancelled():
        return [StoreError("SQLite store: closed")] * count
    error = done.exception()
    return done.result() if error is None else [error] * count
