"""Consumers with a rack over HTTP: real partitions of leader and followers behind their apps."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from tidemark_broker.http.app import create_app
from tidemark_broker.http.broker_view import BrokerView
from tidemark_broker.metadata.producer_id_manager import ProducerIdManager
from tidemark_broker.quota_manager import ClientQuotaManager
from tidemark_broker.replication.results import FetchResult
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import BrokerId

from tests.support.fake_controller import no_producer_ids
from tests.support.in_process_pool import InProcessPool
from tests.unit.broker.http.fake_broker import Client, Response, fake_broker, no_consumer

RECORDS = "/topics/orders/partitions/0/records"


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[InProcessPool]:
    """Broker 1 leads in the west, 2 and 3 stand in the east, 4 has no replica."""
    pool = InProcessPool(tmp_path)
    pool.racks = {1: "west", 2: "east", 3: "east"}
    pool.lead(1)
    pool.brokers[1].produce("a", "b")
    pool.replicate(rounds=4)
    yield pool
    for number in tuple(pool.brokers):
        pool.kill(number)


def ask(pool: InProcessPool, number: int, query: str, listener: str = "") -> Response:
    async def requested() -> Response:
        view = BrokerView(
            pool.brokers[number].partitions,
            BrokerId(number),
            "p",
            "5f3c",
            lambda: (True, ""),
            no_consumer,
            ClientQuotaManager(tuple),
            ProducerIdManager(no_producer_ids),
        )
        return await Client(create_app(view), listener=listener).get(f"{RECORDS}?{query}")

    return asyncio.run(requested())


def test_the_leader_answers_307_to_the_readers_rack(pool: InProcessPool) -> None:
    sent = ask(pool, 1, "offset=0&rack=east&max_bytes=100")
    assert sent.status == 307
    chosen = sent.json()["preferredReadReplica"]
    assert chosen in (2, 3)
    assert sent.headers["location"] == f"http://b{chosen}{RECORDS}?offset=0&rack=east&max_bytes=100"
    assert sent.headers["tidemark-preferred-read-replica"] == str(chosen)


def test_a_leader_whose_reader_cannot_reach_the_nearer_replica_serves_it(
    pool: InProcessPool,
) -> None:
    found = ask(pool, 1, "offset=0&rack=east", listener="outside")
    assert (found.status, [record["offset"] for record in found.json()]) == (200, [0, 1])


def test_the_follower_answers_with_its_records_and_its_watermark(pool: InProcessPool) -> None:
    found = ask(pool, 2, "offset=1&rack=east")
    assert (found.status, [record["offset"] for record in found.json()]) == (200, [1])
    assert found.headers["tidemark-high-watermark"] == "2"


def test_without_a_rack_every_follower_sends_to_the_leader(pool: InProcessPool) -> None:
    sent = ask(pool, 2, "offset=1")
    assert (sent.status, sent.headers["location"]) == (307, f"http://b1{RECORDS}?offset=1")


@pytest.mark.parametrize("rack", ["rack=east", "r%61ck=east"])
def test_a_follower_that_cannot_serve_sends_to_the_leader_without_the_rack(
    pool: InProcessPool, rack: str
) -> None:
    """So the two never send a reader to and fro."""
    pool.lead(1, in_sync=[1, 3])
    sent = ask(pool, 2, f"{rack}&offset=1&max_wait_ms=0")
    assert sent.status == 307
    assert sent.headers["location"] == f"http://b1{RECORDS}?offset=1&max_wait_ms=0"


def test_what_a_follower_does_not_have_is_for_the_leader_to_judge(pool: InProcessPool) -> None:
    sent = ask(pool, 2, "offset=7&rack=east")
    assert (sent.status, sent.headers["location"]) == (307, f"http://b1{RECORDS}?offset=7")
    assert ask(pool, 1, "offset=7").status == 416


def test_names_of_offsets_are_resolved_by_the_leader_which_serves_that_read(
    pool: InProcessPool,
) -> None:
    first = ask(pool, 1, "offset=earliest&rack=east")
    assert (first.status, first.headers["tidemark-next-offset"]) == (200, "2")
    sent = ask(pool, 2, "offset=latest&rack=east")
    assert sent.headers["location"] == f"http://b1{RECORDS}?offset=latest&rack=east"


def test_a_leader_epoch_that_is_not_this_brokers_is_refused(pool: InProcessPool) -> None:
    epoch = pool.state.leader_epoch
    assert ask(pool, 1, f"offset=0&current_leader_epoch={epoch}").status == 200
    fenced = ask(pool, 1, f"offset=0&current_leader_epoch={epoch - 1}")
    assert (fenced.status, fenced.json()["error"]) == (409, "FENCED_LEADER_EPOCH")
    unknown = ask(pool, 2, f"offset=0&rack=east&current_leader_epoch={epoch + 1}")
    assert (unknown.status, unknown.json()["error"]) == (503, "UNKNOWN_LEADER_EPOCH")
    assert unknown.headers["retry-after"] == "1"


def test_a_broker_without_a_replica_sends_to_the_leader_with_the_rack() -> None:
    async def requested() -> Response:
        return await fake_broker((1,), broker_id=7).client.get(f"{RECORDS}?offset=0&rack=east")

    sent = asyncio.run(requested())
    assert sent.status == 307
    assert sent.headers["location"].endswith(f"{RECORDS}?offset=0&rack=east")


@pytest.mark.parametrize(
    "query", [f"rack={'x' * 254}", "current_leader_epoch=-1", f"current_leader_epoch={2**31}"]
)
def test_nonsense_is_refused(query: str) -> None:
    async def requested() -> Response:
        return await fake_broker().client.get(f"{RECORDS}?{query}")

    assert asyncio.run(requested()).status == 400


def test_a_new_leader_without_its_watermark_still_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """OFFSET_NOT_AVAILABLE of the leader itself is no redirect to itself."""

    async def requested() -> Response:
        broker = fake_broker()
        monkeypatch.setattr(
            broker.partitions,
            "fetch",
            lambda *args, done, **named: done(FetchResult(ErrorCode.OFFSET_NOT_AVAILABLE)),
        )
        return await broker.client.get(f"{RECORDS}?offset=5")

    assert asyncio.run(requested()).status == 503
