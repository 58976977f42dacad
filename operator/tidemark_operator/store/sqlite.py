"""Implement ObjectStore by one SQLite file, for local mode (S26).

WAL with synchronous=FULL: a write that returned survives a power loss. One process writes: an
exclusive lock beside the file is held until it ends. Writes share commits in a thread
(`sqlite_writes`), as does reading lists; one object is read on the loop, which takes microseconds.
What is read is on disk: no connection sees a commit before it is synced. `changes_after` and
`wait_for_change` drive the reconcilers, deletions included.

Like the API server: `replace` keeps the stored status of kinds with a status subresource and raises
metadata.generation when something other than metadata and status changed; `replace_status` keeps
everything but the status; a write that changes nothing keeps its resourceVersion.
"""

import asyncio
import fcntl
import sqlite3
import uuid
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

import msgspec

from tidemark_operator.api.kinds import BROKER_POOL, TOPIC, Object, ResourceKind
from tidemark_operator.store.object_store import (
    AlreadyExists,
    Conflict,
    NotFound,
    Rejected,
    StoreError,
)
from tidemark_operator.store.sqlite_writes import SqliteWrites, Transaction

MAX_OBJECT_BYTES = 4 * 1024 * 1024
_Rows = list[tuple[Any, ...]]
Objects = list[Object]  # inside the class `list` is the method

CHANGES_RETAINED = 10_000  # deletions remembered; a watcher further behind must list again

_SCHEMA = """
CREATE TABLE IF NOT EXISTS objects (
    kind TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL, uid TEXT NOT NULL,
    resource_version INTEGER NOT NULL, json TEXT NOT NULL,
    PRIMARY KEY (kind, namespace, name)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS objects_by_version ON objects (resource_version);
CREATE TABLE IF NOT EXISTS deletions (
    resource_version INTEGER PRIMARY KEY, kind TEXT NOT NULL, json TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS counter (id INTEGER PRIMARY KEY CHECK (id = 0), value INTEGER NOT NULL);
INSERT OR IGNORE INTO counter VALUES (0, 0);
"""


@dataclass(frozen=True, slots=True)
class StoredChange:
    """An object as it is now, or as it was when it was deleted."""

    resource_version: int
    kind: str
    item: Object
    is_deleted: bool


class WatchExpired(StoreError):
    """An error: deletions after that resource version are forgotten; list everything again."""


class SqliteStore:
    """A store of one SQLite file, owned by one event loop."""

    def __init__(
        self,
        path: Path,
        *,
        kinds_with_status: frozenset[str] = frozenset({TOPIC.kind, BROKER_POOL.kind}),
        executor: Executor | None = None,
    ) -> None:
        """Open the file; `executor` has one thread, which `close` ends.

        Raises StoreError when another process holds the file or it cannot be opened.
        """
        self._kinds_with_status = kinds_with_status
        self._lock_file = _lock(path)
        self._connections: list[sqlite3.Connection] = []
        try:
            writing = self._connected(path)
            writing.executescript(_SCHEMA)
            self._reading, self._listing = self._connected(path), self._connected(path)
        except sqlite3.Error as error:
            self._close_file()
            raise StoreError(f"{path}: cannot be opened as a SQLite store: {error}") from error
        self._changed = asyncio.Event()
        self._executor = executor or ThreadPoolExecutor(1, thread_name_prefix="sqlite")
        self._writes = SqliteWrites(writing, self._executor, on_change=self._changed.set)

    def close(self) -> None:
        """Close the file after the running commit."""
        self._executor.shutdown()
        self._close_file()

    def _connected(self, path: Path) -> sqlite3.Connection:
        # Each is used by one thread at a time.
        connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._connections.append(connection)
        connection.execute("PRAGMA journal_mode=WAL")
        _sync_in_full(connection)
        return connection

    def _close_file(self) -> None:
        for connection in self._connections:
            connection.close()
        self._lock_file.close()

    async def get(self, kind: ResourceKind, namespace: str, name: str) -> Object | None:
        rows = _rows(self._reading, _SELECT_ONE, (kind.kind, namespace, name))
        return _decoded(rows[0][0]) if rows else None

    async def list(
        self, kind: ResourceKind, namespace: str | None, labels: Mapping[str, str] | None = None
    ) -> Objects:
        def listed() -> Objects:
            rows = _rows(
                self._listing,
                "SELECT json FROM objects WHERE kind = ? AND (? IS NULL OR namespace = ?)"
                " ORDER BY namespace, name",
                (kind.kind, namespace, namespace),
            )
            return [_decoded(row[0]) for row in rows]

        items = await asyncio.get_running_loop().run_in_executor(self._executor, listed)
        if not labels:
            return items
        return [item for item in items if _has_labels(item, labels)]

    async def create(self, kind: ResourceKind, item: Object) -> Object:
        metadata = dict(item.get("metadata", {}))
        namespace, name = metadata.get("namespace", ""), metadata.get("name", "")
        if not name:
            raise Rejected(f"{kind.kind}: metadata.name is empty, expected a name")

        def work(transaction: Transaction) -> Object:
            if _stored(transaction, kind, namespace, name) is not None:
                raise AlreadyExists(f"{kind.kind} {namespace}/{name} already exists")
            metadata["uid"] = str(uuid.uuid4())
            metadata["creationTimestamp"] = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            metadata["generation"] = 1
            created = {**item, "metadata": metadata}
            created |= {"apiVersion": kind.api_version, "kind": kind.kind}
            if kind.kind in self._kinds_with_status:
                created.pop("status", None)
            return _written(transaction, kind, created)

        return await self._write(work)

    async def replace(self, kind: ResourceKind, item: Object) -> Object:
        def work(transaction: Transaction) -> Object:
            stored = _compared(transaction, kind, item)
            replaced = {**item, "apiVersion": kind.api_version, "kind": kind.kind}
            if kind.kind in self._kinds_with_status:
                replaced.pop("status", None)
                if "status" in stored:
                    replaced["status"] = stored["status"]
            replaced["metadata"] = _retained_identity(item["metadata"], stored["metadata"])
            if _spec_part(replaced) != _spec_part(stored):
                replaced["metadata"]["generation"] = stored["metadata"]["generation"] + 1
            return stored if replaced == stored else _written(transaction, kind, replaced)

        return await self._write(work)

    async def replace_status(self, kind: ResourceKind, item: Object) -> Object:
        def work(transaction: Transaction) -> Object:
            stored = _compared(transaction, kind, item)
            replaced = {key: value for key, value in stored.items() if key != "status"}
            if "status" in item:
                replaced["status"] = item["status"]
            return stored if replaced == stored else _written(transaction, kind, replaced)

        return await self._write(work)

    async def delete(
        self,
        kind: ResourceKind,
        namespace: str,
        name: str,
        *,
        uid: str | None = None,
        resource_version: str | None = None,
    ) -> None:
        def work(transaction: Transaction) -> None:
            stored = _stored(transaction, kind, namespace, name)
            if stored is None:
                return
            for field, expected in (("uid", uid), ("resourceVersion", resource_version)):
                found = stored["metadata"][field]
                if expected is not None and expected != found:
                    place = f"{kind.kind} {namespace}/{name}"
                    raise Conflict(f"{place}: expected {field} {expected}, found {found}")
            transaction.write(
                (
                    "DELETE FROM objects WHERE kind = ? AND namespace = ? AND name = ?",
                    (kind.kind, namespace, name),
                ),
                (
                    "INSERT INTO deletions VALUES (?, ?, ?)",
                    (transaction.next_version(), kind.kind, _encoded(stored)),
                ),
                (
                    "DELETE FROM deletions WHERE resource_version <="
                    " (SELECT resource_version FROM deletions"
                    " ORDER BY resource_version DESC LIMIT 1 OFFSET ?)",
                    (CHANGES_RETAINED,),
                ),
            )

        await self._writes.run(work)

    async def _write(self, work: Callable[[Transaction], Object]) -> Object:
        written = await self._writes.run(work)
        assert written is not None
        return written

    def resource_version(self) -> int:
        """Return the global counter, the version of the newest write."""
        return int(_rows(self._reading, "SELECT value FROM counter", ())[0][0])

    def changes_after(
        self, resource_version: int, *, kinds: Collection[ResourceKind] | None = None
    ) -> tuple[StoredChange, ...]:
        """Return all that was written since, oldest first, each object once in its newest form.

        Raises WatchExpired when deletions after that version are no longer known.
        """
        counted = "SELECT count(*), min(resource_version) FROM deletions"
        forgotten = _rows(self._reading, counted, ())[0]
        if forgotten[0] >= CHANGES_RETAINED and resource_version < forgotten[1]:
            raise WatchExpired(
                f"changes after {resource_version} requested, deletions are stored from"
                f" {forgotten[1]} on: list again"
            )
        named = () if kinds is None else tuple(kind.kind for kind in kinds)
        of_kinds = "" if kinds is None else f" AND kind IN ({', '.join('?' * len(named))})"
        rows = _rows(
            self._reading,
            "SELECT resource_version, kind, json, 0 FROM objects"
            f" WHERE resource_version > ?{of_kinds}"
            " UNION ALL"
            " SELECT resource_version, kind, json, 1 FROM deletions"
            f" WHERE resource_version > ?{of_kinds}"
            " ORDER BY 1",
            (resource_version, *named, resource_version, *named),
        )
        return tuple(StoredChange(row[0], row[1], _decoded(row[2]), bool(row[3])) for row in rows)

    async def wait_for_change(self, resource_version: int) -> None:
        """Wait for a write after that version; cancel it to stop."""
        while self.resource_version() <= resource_version:
            self._changed.clear()
            await self._changed.wait()


_SELECT_ONE = "SELECT json FROM objects WHERE kind = ? AND namespace = ? AND name = ?"


def _rows(connection: sqlite3.Connection, sql: str, arguments: tuple[Any, ...]) -> _Rows:
    try:
        return connection.execute(sql, arguments).fetchall()
    except sqlite3.Error as error:
        raise StoreError(f"SQLite store: {error}") from error


def _stored(
    transaction: Transaction, kind: ResourceKind, namespace: str, name: str
) -> Object | None:
    row = transaction.row(_SELECT_ONE, (kind.kind, namespace, name))
    return None if row is None else _decoded(str(row[0]))


def _compared(transaction: Transaction, kind: ResourceKind, item: Object) -> Object:
    metadata = item["metadata"]
    namespace, name = metadata.get("namespace", ""), metadata["name"]
    stored = _stored(transaction, kind, namespace, name)
    if stored is None:
        raise NotFound(f"{kind.kind} {namespace}/{name} does not exist")
    expected, found = metadata.get("resourceVersion"), stored["metadata"]["resourceVersion"]
    if not expected:  # as the API server does for custom resources
        raise Rejected(f"{kind.kind} {namespace}/{name}: metadata.resourceVersion is missing")
    if expected != found:
        raise Conflict(
            f"{kind.kind} {namespace}/{name}: expected version {expected}, found {found}"
        )
    if "uid" in metadata and metadata["uid"] != stored["metadata"]["uid"]:
        raise Conflict(f"{kind.kind} {namespace}/{name}: another object has this name")
    return stored


def _written(transaction: Transaction, kind: ResourceKind, item: Object) -> Object:
    version = transaction.next_version()
    metadata = {**item["metadata"], "resourceVersion": str(version)}
    text = _encoded({**item, "metadata": metadata})
    if len(text) > MAX_OBJECT_BYTES:
        raise Rejected(
            f"{kind.kind} {metadata['name']}: expected at most {MAX_OBJECT_BYTES} bytes,"
            f" found {len(text)}"
        )
    key = (kind.kind, metadata.get("namespace", ""), metadata["name"])
    transaction.write(
        (
            "INSERT OR REPLACE INTO objects VALUES (?, ?, ?, ?, ?, ?)",
            (*key, metadata["uid"], version, text),
        )
    )
    return _decoded(text)


def _encoded(item: Object) -> str:
    return msgspec.json.encode(item).decode()


def _decoded(text: str) -> Object:
    item: Object = msgspec.json.decode(text)
    return item


# guard: local-store-syncs-writes (S26)
def _sync_in_full(connection: sqlite3.Connection) -> None:
    """Sync each commit in full (S26): with less, WAL loses the last writes at a power loss."""
    connection.execute("PRAGMA synchronous=FULL")


def _lock(path: Path) -> IO[str]:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock_file = path.with_name(path.name + ".lock").open("a")
    except OSError as error:
        raise StoreError(f"{path}: cannot be opened: {error}") from error
    try:
        fcntl.flock(lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        lock_file.close()
        raise StoreError(
            f"{path} is in use by another process, which holds its lock: stop that process first"
        ) from error
    return lock_file


def _has_labels(item: Object, labels: Mapping[str, str]) -> bool:
    found = item["metadata"].get("labels", {})
    return all(found.get(key) == value for key, value in labels.items())


def _retained_identity(metadata: Object, stored: Object) -> Object:
    kept = ("uid", "creationTimestamp", "generation", "resourceVersion")
    return {**metadata, **{key: stored[key] for key in kept}}


def _spec_part(item: Object) -> Object:
    return {key: value for key, value in item.items() if key not in ("metadata", "status")}
