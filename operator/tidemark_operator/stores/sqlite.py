"""ObjectStore on one SQLite file, for local mode (S26).

WAL with synchronous=FULL: a write that returned survives a power cut. One process writes: an
exclusive lock beside the file is held for life. Calls are inline and synchronous inside: each is a
few hundred microseconds on a small table and local mode has one reader, so a thread would only add
reordering. `changes_after` and `wait_for_change` drive the reconcilers, deletions included.

Like the API server: `replace` keeps the stored status of kinds with a status subresource and raises
metadata.generation when something other than metadata and status changed; `replace_status` keeps
everything but the status; a write that changes nothing keeps its resourceVersion.
"""

import asyncio
import fcntl
import json
import sqlite3
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from tidemark_operator.stores.object_store import (
    BROKER_POOL,
    TOPIC,
    AlreadyExists,
    Conflict,
    NotFound,
    Object,
    Refused,
    ResourceKind,
    StoreError,
)

MAX_OBJECT_BYTES = 4 * 1024 * 1024
_Rows = list[tuple[Any, ...]]
_Statements = Callable[[int], list[tuple[str, tuple[Any, ...]]]]

CHANGES_KEPT = 10_000  # deletions remembered; a watcher further behind must list again

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
    """One object as it is now, or as it was when it was deleted."""

    resource_version: int
    kind: str
    item: Object
    is_deleted: bool


class TooFarBehind(StoreError):
    """Deletions after that resource version are forgotten: list everything again."""


class SqliteStore:
    """Not thread-safe: one event loop owns it."""

    def __init__(
        self,
        path: Path,
        *,
        kinds_with_status: frozenset[str] = frozenset({TOPIC.kind, BROKER_POOL.kind}),
    ) -> None:
        """Raises StoreError when another process holds the file or it cannot be opened."""
        self._kinds_with_status = kinds_with_status
        self._lock_file = _lock(path)
        try:
            self._connection = sqlite3.connect(path, isolation_level=None)
            self._connection.execute("PRAGMA journal_mode=WAL")
            _sync_in_full(self._connection)
            self._connection.executescript(_SCHEMA)
        except sqlite3.Error as error:
            self._lock_file.close()
            raise StoreError(f"{path}: cannot be opened as a SQLite store: {error}") from error
        self._changed = asyncio.Event()

    def close(self) -> None:
        self._connection.close()
        self._lock_file.close()

    async def get(self, kind: ResourceKind, namespace: str, name: str) -> Object | None:
        return self._stored(kind, namespace, name)

    async def list(
        self, kind: ResourceKind, namespace: str | None, labels: Mapping[str, str] | None = None
    ) -> list[Object]:
        rows = self._run(
            "SELECT json FROM objects WHERE kind = ? AND (? IS NULL OR namespace = ?)"
            " ORDER BY namespace, name",
            (kind.kind, namespace, namespace),
        )
        items: list[Object] = [json.loads(row[0]) for row in rows]
        if not labels:
            return items
        return [item for item in items if _has_labels(item, labels)]

    async def create(self, kind: ResourceKind, item: Object) -> Object:
        metadata = dict(item.get("metadata", {}))
        namespace, name = metadata.get("namespace", ""), metadata.get("name", "")
        if not name:
            raise Refused(f"{kind.kind}: metadata.name is empty, expected a name")
        if self._stored(kind, namespace, name) is not None:
            raise AlreadyExists(f"{kind.kind} {namespace}/{name} exists already")
        metadata["uid"] = str(uuid.uuid4())
        metadata["creationTimestamp"] = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        metadata["generation"] = 1
        created = {**item, "apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata}
        if kind.kind in self._kinds_with_status:
            created.pop("status", None)
        return self._write(kind, created)

    async def replace(self, kind: ResourceKind, item: Object) -> Object:
        stored = self._compared(kind, item)
        replaced = {**item, "apiVersion": kind.api_version, "kind": kind.kind}
        if kind.kind in self._kinds_with_status:
            replaced.pop("status", None)
            if "status" in stored:
                replaced["status"] = stored["status"]
        replaced["metadata"] = _kept_identity(item["metadata"], stored["metadata"])
        if _spec_part(replaced) != _spec_part(stored):
            replaced["metadata"]["generation"] = stored["metadata"]["generation"] + 1
        return stored if replaced == stored else self._write(kind, replaced)

    async def replace_status(self, kind: ResourceKind, item: Object) -> Object:
        stored = self._compared(kind, item)
        replaced = {key: value for key, value in stored.items() if key != "status"}
        if "status" in item:
            replaced["status"] = item["status"]
        return stored if replaced == stored else self._write(kind, replaced)

    async def delete(
        self,
        kind: ResourceKind,
        namespace: str,
        name: str,
        *,
        uid: str | None = None,
        resource_version: str | None = None,
    ) -> None:
        stored = self._stored(kind, namespace, name)
        if stored is None:
            return
        for field, expected in (("uid", uid), ("resourceVersion", resource_version)):
            found = stored["metadata"][field]
            if expected is not None and expected != found:
                raise Conflict(
                    f"{kind.kind} {namespace}/{name}: expected {field} {expected}, found {found}"
                )
        self._transaction(
            lambda version: [
                (
                    "DELETE FROM objects WHERE kind = ? AND namespace = ? AND name = ?",
                    (kind.kind, namespace, name),
                ),
                (
                    "INSERT INTO deletions VALUES (?, ?, ?)",
                    (version, kind.kind, json.dumps(stored)),
                ),
                (
                    "DELETE FROM deletions WHERE resource_version <="
                    " (SELECT resource_version FROM deletions"
                    " ORDER BY resource_version DESC LIMIT 1 OFFSET ?)",
                    (CHANGES_KEPT,),
                ),
            ]
        )

    def resource_version(self) -> int:
        """The global counter: of the newest write."""
        return int(self._run("SELECT value FROM counter")[0][0])

    def changes_after(self, resource_version: int) -> tuple[StoredChange, ...]:
        """Everything written since, oldest first, each object once in its newest form.

        Raises TooFarBehind when deletions after that version are no longer known."""
        forgotten = self._run("SELECT count(*), min(resource_version) FROM deletions")[0]
        if forgotten[0] >= CHANGES_KEPT and resource_version < forgotten[1]:
            raise TooFarBehind(
                f"changes after {resource_version} asked for,"
                f" deletions are known from {forgotten[1]} on: list again"
            )
        rows = self._run(
            "SELECT resource_version, kind, json, 0 FROM objects WHERE resource_version > ?"
            " UNION ALL"
            " SELECT resource_version, kind, json, 1 FROM deletions WHERE resource_version > ?"
            " ORDER BY 1",
            (resource_version, resource_version),
        )
        return tuple(StoredChange(row[0], row[1], json.loads(row[2]), bool(row[3])) for row in rows)

    async def wait_for_change(self, resource_version: int) -> None:
        """Returns once something was written after that version; cancel it to stop waiting."""
        while self.resource_version() <= resource_version:
            self._changed.clear()
            await self._changed.wait()

    def _stored(self, kind: ResourceKind, namespace: str, name: str) -> Object | None:
        rows = self._run(
            "SELECT json FROM objects WHERE kind = ? AND namespace = ? AND name = ?",
            (kind.kind, namespace, name),
        )
        return json.loads(rows[0][0]) if rows else None

    def _compared(self, kind: ResourceKind, item: Object) -> Object:
        metadata = item["metadata"]
        namespace, name = metadata.get("namespace", ""), metadata["name"]
        stored = self._stored(kind, namespace, name)
        if stored is None:
            raise NotFound(f"{kind.kind} {namespace}/{name} does not exist")
        expected, found = metadata.get("resourceVersion"), stored["metadata"]["resourceVersion"]
        if not expected:  # as the API server does for custom resources
            raise Refused(f"{kind.kind} {namespace}/{name}: metadata.resourceVersion is missing")
        if expected != found:
            raise Conflict(
                f"{kind.kind} {namespace}/{name}: expected version {expected}, found {found}"
            )
        if "uid" in metadata and metadata["uid"] != stored["metadata"]["uid"]:
            raise Conflict(f"{kind.kind} {namespace}/{name}: another object of that name")
        return stored

    def _write(self, kind: ResourceKind, item: Object) -> Object:
        metadata = dict(item["metadata"])

        def statements(version: int) -> list[tuple[str, tuple[Any, ...]]]:
            metadata["resourceVersion"] = str(version)
            text = json.dumps({**item, "metadata": metadata}, separators=(",", ":"))
            if len(text) > MAX_OBJECT_BYTES:
                raise Refused(
                    f"{kind.kind} {metadata['name']}: expected at most {MAX_OBJECT_BYTES} bytes,"
                    f" found {len(text)}"
                )
            key = (kind.kind, metadata.get("namespace", ""), metadata["name"])
            return [
                (
                    "INSERT OR REPLACE INTO objects VALUES (?, ?, ?, ?, ?, ?)",
                    (*key, metadata["uid"], version, text),
                )
            ]

        self._transaction(statements)
        written: Object = json.loads(json.dumps({**item, "metadata": metadata}))
        return written

    def _transaction(self, statements: _Statements) -> None:
        self._run("BEGIN IMMEDIATE")
        try:
            self._run("UPDATE counter SET value = value + 1")
            for sql, arguments in statements(self.resource_version()):
                self._run(sql, arguments)
            self._run("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise
        self._changed.set()

    def _run(self, sql: str, arguments: tuple[Any, ...] = ()) -> _Rows:
        try:
            return self._connection.execute(sql, arguments).fetchall()
        except sqlite3.Error as error:
            raise StoreError(f"SQLite store: {error}") from error


def _sync_in_full(connection: sqlite3.Connection) -> None:
    """S26: with less, WAL loses the last writes that returned when the power fails."""
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
            f"{path} is in use by another process (its lock is held): stop that one first"
        ) from error
    return lock_file


def _has_labels(item: Object, labels: Mapping[str, str]) -> bool:
    found = item["metadata"].get("labels", {})
    return all(found.get(key) == value for key, value in labels.items())


def _kept_identity(metadata: Object, stored: Object) -> Object:
    kept = ("uid", "creationTimestamp", "generation", "resourceVersion")
    return {**metadata, **{key: stored[key] for key in kept}}


def _spec_part(item: Object) -> Object:
    return {key: value for key, value in item.items() if key not in ("metadata", "status")}
