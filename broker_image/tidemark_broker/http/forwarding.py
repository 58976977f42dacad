"""Forward records of a request to the brokers that lead them, so that the client gets one response.

One POST per leader, within the request's own deadline, never repeated: after a connection was made
the outcome is unknown unless the leader says otherwise. A header makes the leader answer for itself
instead of redirecting or forwarding again. Brokers are reached at their own address, as for
replication, not at the advertised one.
"""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

import aiohttp
import msgspec
from tidemark_protocol.controller_messages import Endpoints
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import BrokerId

from tidemark_broker.http.media_types import EmbeddedFormat
from tidemark_broker.http.problems import Outcome
from tidemark_broker.http.produce_bodies import ProducedRecord, encode_binary
from tidemark_broker.http.produce_results import RecordResult, Written, failed
from tidemark_broker.http.request import AUTHORIZATION, CLIENT_ID, FORWARDED_BY
from tidemark_broker.security.peer_addresses import PLAIN, PeerAddress, PeerAddresses

CONNECTIONS = 64
CONNECTIONS_PER_PEER = 16
MAX_RESPONSE_BYTES = 16 * 1024 * 1024
GRACE_SECONDS = 1.0  # the leader answers by the deadline; the answer still has to travel
_UNREADABLE = "broker {broker_id}: invalid response (status {status})"


class _Entry(msgspec.Struct):
    partition: int
    offset: int | None = None
    error_code: int = 0
    message: str = ""
    outcome: str = ""


class _Response(msgspec.Struct):
    offsets: list[_Entry]


class _Problem(msgspec.Struct):
    detail: str
    outcome: str
    error_code: int | None = None
    errorCode: int | None = None  # of a broker of release 0.1, while a pool is upgraded

    def error(self) -> ErrorCode:
        """Return the error code.

        Raises ValueError.
        """
        code = self.errorCode if self.error_code is None else self.error_code
        if code is None:
            raise ValueError("expected an error code, found none")
        return ErrorCode(code)


class ForwardTerms(NamedTuple):
    """The terms of the client's request: `deadline` in the loop's time, and whose quota counts.

    `authorization` is the client's own header: the leader finds out by it who the client is.
    """

    acks: int
    deadline: float
    client_id: str
    authorization: bytes = b""


class Forwarder:
    def __init__(self, broker_id: BrokerId, addresses: PeerAddresses = PLAIN) -> None:
        self._addresses = addresses
        self._broker_id = broker_id
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def forward(
        self,
        leader: BrokerId,
        endpoints: Endpoints,
        topic: str,
        records: Sequence[tuple[int, ProducedRecord]],
        terms: ForwardTerms,
    ) -> list[RecordResult]:
        """Forward records; return one result per record, in order."""
        remaining_seconds = terms.deadline - asyncio.get_running_loop().time()
        if remaining_seconds <= 0:
            return _all_failed(
                records,
                ErrorCode.REQUEST_TIMED_OUT,
                f"broker {leader}: not forwarded, timeout_ms is over",
                Outcome.NOT_WRITTEN,
            )
        address = self._addresses.http(leader, endpoints)
        url = (
            f"{address.url}/topics/{topic}"
            f"?acks={terms.acks}&timeout_ms={int(remaining_seconds * 1000)}"
        )
        error, outcome = ErrorCode.NETWORK_EXCEPTION, Outcome.UNKNOWN
        try:
            status, body = await self._post(
                url,
                address,
                encode_binary(records),
                terms,
                seconds=remaining_seconds + GRACE_SECONDS,
            )
            return _read_response(records, leader, status, body)
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as cause:
            error, outcome = ErrorCode.LEADER_NOT_AVAILABLE, Outcome.NOT_WRITTEN  # never sent
            message = f"broker {leader}: no connection: {cause}"
        except TimeoutError:
            error = ErrorCode.REQUEST_TIMED_OUT
            message = f"broker {leader}: no response within timeout_ms"
        except aiohttp.ClientError as cause:
            message = f"broker {leader}: the connection ended before the response: {cause!r}"
        return _all_failed(records, error, message, outcome)

    async def _post(
        self, url: str, address: PeerAddress, body: bytes, terms: ForwardTerms, *, seconds: float
    ) -> tuple[int, bytes]:
        headers = {
            "content-type": EmbeddedFormat.BINARY.value.decode(),
            CLIENT_ID.decode(): terms.client_id,
        }
        if terms.authorization:
            headers[AUTHORIZATION.decode()] = terms.authorization.decode("latin-1")
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    limit=CONNECTIONS, limit_per_host=CONNECTIONS_PER_PEER
                ),
                auto_decompress=False,
                headers={FORWARDED_BY.decode(): str(self._broker_id)},
            )
        async with self._session.post(
            url,
            data=body,
            headers=headers,
            allow_redirects=False,
            timeout=aiohttp.ClientTimeout(total=seconds),
            **address.request_options(),
        ) as response:
            answer = bytearray()
            async for chunk in response.content.iter_any():
                answer += chunk
                if len(answer) > MAX_RESPONSE_BYTES:
                    raise aiohttp.ClientPayloadError(
                        f"expected at most {MAX_RESPONSE_BYTES} bytes, found more"
                    )
            return response.status, bytes(answer)


def _read_response(
    records: Sequence[tuple[int, ProducedRecord]], leader: BrokerId, status: int, body: bytes
) -> list[RecordResult]:
    try:
        if status != 200:
            problem = msgspec.json.decode(body, type=_Problem)
            error, outcome = problem.error(), Outcome(problem.outcome)
            return _all_failed(records, error, problem.detail, outcome)
        entries = msgspec.json.decode(body, type=_Response).offsets
        if [entry.partition for entry in entries] != [partition for partition, _ in records]:
            raise ValueError("expected the forwarded partitions, found others")
        return [_result(entry) for entry in entries]
    except (msgspec.DecodeError, ValueError):
        message = _UNREADABLE.format(broker_id=leader, status=status)
        return _all_failed(records, ErrorCode.NETWORK_EXCEPTION, message, Outcome.UNKNOWN)


def _result(entry: _Entry) -> RecordResult:
    if entry.offset is not None:
        return Written(entry.partition, entry.offset)
    error, outcome = ErrorCode(entry.error_code), Outcome(entry.outcome)
    return failed(entry.partition, error, entry.message, outcome)


def _all_failed(
    records: Sequence[tuple[int, ProducedRecord]], error: ErrorCode, message: str, outcome: Outcome
) -> list[RecordResult]:
    return [failed(partition, error, message, outcome) for partition, _ in records]
