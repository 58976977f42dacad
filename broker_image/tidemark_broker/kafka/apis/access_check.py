"""Check Kafka requests of clients that have names, by the table in required_access.py.

A rule is run with what is known. What it lacks is asked of the controller in one request, and the
rule is run again; after MAX_ROUNDS what is still not known is denied. Produce and Fetch, whose
requests are no tables of fields, only need the topics that are denied.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable
from functools import lru_cache
from typing import Any, TypeVar

from tidemark_protocol.access_messages import ANONYMOUS, Access, ResourceKind, Verb
from tidemark_protocol.error_codes import ErrorCode

from tidemark_broker.kafka.apis.access_rule import Scope
from tidemark_broker.kafka.apis.required_access import REQUIRED_ACCESS
from tidemark_broker.kafka.network.request import KafkaRequest
from tidemark_broker.kafka.network.response_writer import RespondLater
from tidemark_broker.kafka_wire.messages.frames import API_NAMES, CREATE_ACLS, DELETE_ACLS
from tidemark_broker.kafka_wire.messages.schema import Api, Values
from tidemark_broker.metadata.metadata_cache import MetadataCache
from tidemark_broker.security.access_log import Origin
from tidemark_broker.security.authorizer import Authorizer
from tidemark_broker.security.role_text import denial

MAX_ROUNDS = 4
MAX_NAMES = 2_000  # that a request is looked up for
MAX_SENTENCES = 100  # about denied names, in a response and in the log
MAX_NAME = 1_000  # a longer name needs the access to all
NO_TOPICS: frozenset[str] = frozenset()
_NEVER_ALLOWED = frozenset({CREATE_ACLS, DELETE_ACLS})  # there are no ACLs; that one asks is logged

Made = TypeVar("Made")

_log = logging.getLogger(__name__)


class Asker:
    """What a rule asks; it collects what is not known, and what was denied or is changed.

    A client that may do something to all of a kind is asked nothing about each, however many a
    request names. Of others a request is looked up for MAX_NAMES; the rest is denied.
    """

    def __init__(self, authorizer: Authorizer, request: KafkaRequest, *, is_admin: bool) -> None:
        self._authorizer = authorizer
        self._is_admin = is_admin
        self._names_left = MAX_NAMES
        self._sentences_left = MAX_SENTENCES
        self._every: dict[tuple[Verb, ResourceKind], bool] = {}
        self.principal = request.principal
        self.unknown: dict[Access, None] = {}
        self.denied: dict[Access, None] = {}
        self.performed: dict[Access, None] = {}

    def may(self, verb: Verb, kind: ResourceKind, name: str) -> bool:
        """Return whether what the client asks for is allowed; a denial is logged."""
        if not self.sees(verb, kind, name):
            if len(self.denied) < MAX_SENTENCES:
                self.denied[_access(verb, kind, name)] = None
            return False
        if self._is_admin:
            self.performed[_access(verb, kind, name)] = None
        return True

    def sees(self, verb: Verb, kind: ResourceKind, name: str) -> bool:
        """Return whether an access is allowed, to show or to leave out what belongs to it."""
        every = self._every.get((verb, kind))
        if every is None:
            known = self._authorizer.known(self.principal, _access(verb, kind, ""))
            every = self._every[verb, kind] = known is True
        if every:
            return True
        self._names_left -= 1
        return self._names_left >= 0 and self._known(_access(verb, kind, name))

    def sees_every(self, verb: Verb, kind: ResourceKind) -> bool | None:
        """Return whether the access to all is allowed, or None if that is not known yet."""
        access = _access(verb, kind, "")
        is_allowed = self._known(access)
        return None if access in self.unknown else is_allowed

    def allowed_names(self, verb: Verb, kind: ResourceKind) -> frozenset[str]:
        """Return the names that are known to be allowed."""
        return self._authorizer.allowed_names(self.principal, verb, kind)

    def denial(self, verb: Verb, kind: ResourceKind, name: str) -> str:
        """Return why an access is denied; of many the first ones are enough."""
        if self._sentences_left <= 0:
            return "the access is denied: see the first errors of the response"
        self._sentences_left -= 1
        namespace = self._authorizer.namespace
        return denial(self.principal, _access(verb, kind, name), namespace)

    def _known(self, access: Access) -> bool:
        known = self._authorizer.known(self.principal, access)
        if known is None:
            self.unknown[access] = None
        return known is True


@lru_cache(4096)  # a new one costs more than the lookup of what is known about it
def _access(verb: Verb, kind: ResourceKind, name: str) -> Access:
    return Access(verb, kind, name if len(name) <= MAX_NAME else "")


class KafkaAccess:
    """The check of requests that came in by the listeners `checked`.

    At those that are `optional` clients without a name are not checked.
    """

    def __init__(
        self,
        authorizer: Authorizer,
        metadata: MetadataCache,
        *,
        checked: Collection[str],
        optional: Collection[str],
        creates_topics: bool,
    ) -> None:
        self._authorizer = authorizer
        self._metadata = metadata
        self._checked = frozenset(checked)
        self._optional = frozenset(optional)
        self._creates_topics = creates_topics
        self._tasks: dict[asyncio.Task[Any], None] = {}

    def is_checked(self, request: KafkaRequest) -> bool:
        return request.listener in self._checked and not (
            request.principal is ANONYMOUS and request.listener in self._optional
        )

    async def respond(
        self, api: Api, request: KafkaRequest, requested: Values, respond: RespondLater
    ) -> Values:
        """Return the response, of which `respond` makes what is allowed."""
        required = REQUIRED_ACCESS[api.api_key]
        scope = Scope(
            request.version, self._metadata, self._authorizer.pool_name, self._creates_topics
        )
        decision, asker = await self._decided(
            request,
            lambda asker: required.rule(asker, requested, scope),
            is_admin=required.is_admin,
        )
        values = decision.values
        if decision.requested is not None:
            values = await respond(request, decision.requested)
        values, _ = await self._decided(request, lambda asker: decision.complete(asker, values))
        self._log(request, asker, values)
        return values

    def check_topics(
        self,
        request: KafkaRequest,
        verb: Verb,
        topics: Iterable[str],
        then: Callable[[frozenset[str]], None],
    ) -> None:
        """Call `then` with the topics that are denied, at once if all are known."""
        known, principal = self._authorizer.known, request.principal
        if all(known(principal, _access(verb, ResourceKind.TOPIC, name)) for name in topics):
            then(NO_TOPICS)
            return
        asker = Asker(self._authorizer, request, is_admin=False)
        denied = _denied_topics(asker, verb, topics)
        if not asker.unknown:
            if denied:
                self._log(request, asker, {})
            then(denied)
            return
        task = asyncio.get_running_loop().create_task(
            self._check_topics_later(request, verb, tuple(topics), then)
        )
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._tasks.pop(done, None))
        request.cancel = task.cancel

    def fresh_ms(self, request: KafkaRequest, verb: Verb, topics: Iterable[str]) -> int:
        """Return for how long a request may wait without another check of these topics."""
        return min(
            (
                self._authorizer.fresh_ms(
                    request.principal, _access(verb, ResourceKind.TOPIC, topic)
                )
                for topic in topics
            ),
            default=0,
        )

    # ---- inside

    async def _check_topics_later(
        self,
        request: KafkaRequest,
        verb: Verb,
        topics: tuple[str, ...],
        then: Callable[[frozenset[str]], None],
    ) -> None:
        try:
            denied, asker = await self._decided(
                request, lambda asker: _denied_topics(asker, verb, topics)
            )
            self._log(request, asker, {})
            request.measured(lambda: then(denied))
        except Exception as error:
            _log.exception("request failed", extra={"api": _name(request)})
            request.fail(f"{_name(request)}: {error}")

    async def _decided(
        self, request: KafkaRequest, decide: Callable[[Asker], Made], *, is_admin: bool = False
    ) -> tuple[Made, Asker]:
        """Run a decision until it knows what it asks, or learns nothing more."""
        before: dict[Access, None] = {}
        for _ in range(MAX_ROUNDS):
            asker = Asker(self._authorizer, request, is_admin=is_admin)
            made = decide(asker)
            if not asker.unknown or asker.unknown == before:
                return made, asker
            before = asker.unknown
            await self._authorizer.ensure(request.principal, before)
        asker = Asker(self._authorizer, request, is_admin=is_admin)
        return decide(asker), asker

    def _log(self, request: KafkaRequest, asker: Asker, values: Values) -> None:
        if request.header.api_key in _NEVER_ALLOWED:
            pool = self._authorizer.pool_name
            asker.denied[_access(Verb.ALTER, ResourceKind.POOL, pool)] = None
        if not asker.denied and not asker.performed:
            return
        origin = Origin(
            request.principal,
            _name(request),
            request.listener,
            request.client_host,
            str(request.header.correlation_id),
        )
        for access in asker.denied:
            self._authorizer.log.denied(origin, access)
        failed = _failed_names(values) if asker.performed else set()
        for access in asker.performed:
            if access.name not in failed:
                self._authorizer.log.performed(origin, access)


def _name(request: KafkaRequest) -> str:
    return API_NAMES[request.header.api_key]


def _denied_topics(asker: Asker, verb: Verb, topics: Iterable[str]) -> frozenset[str]:
    denied = [topic for topic in topics if not asker.may(verb, ResourceKind.TOPIC, topic)]
    return frozenset(denied) if denied else NO_TOPICS


def _failed_names(values: Values) -> set[str]:
    """Return the topics, groups and resources of a response that have an error."""
    failed: set[str] = set()
    for entries in (values.get("topics"), values.get("groups"), values.get("resources")):
        for entry in entries or ():
            errors = {entry.get("error", ErrorCode.NONE)}
            errors.update(
                each.get("error", ErrorCode.NONE) for each in entry.get("partitions") or ()
            )
            if errors != {ErrorCode.NONE}:
                failed.add(entry.get("topic") or entry.get("group_id") or entry.get("resource"))
    return failed
