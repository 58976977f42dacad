"""Quotas by client id over HTTP: who is above gets 429 and when to come again."""

import asyncio
import json

from tidemark_protocol.controller_messages import ClientQuota

from tests.unit.broker.http.fake_broker import Response, fake_broker

PRODUCE = "/topics/orders/partitions/0"
RECORDS = "/topics/orders/partitions/0/records?offset=0"
BODY = json.dumps({"records": [{"value": "A" * 4000}]}).encode()


def statuses(answers: list[Response]) -> list[int]:
    return [response.status for response in answers]


def test_a_producer_above_its_quota_is_told_when_to_come_again_and_nothing_is_written() -> None:
    async def main() -> None:
        broker = fake_broker(quotas=(ClientQuota("a", produce_bytes_per_second=300),))
        responses = [
            await broker.client.post(PRODUCE, BODY, **{"tidemark-client-id": "a"}) for _ in range(3)
        ]
        assert statuses(responses) == [200, 429, 429]  # ten seconds' worth may be used at once
        refused = responses[1]
        assert 1 <= int(refused.headers["retry-after"]) <= 10
        problem = refused.json()
        assert (problem["error"], problem["outcome"]) == (
            "THROTTLING_QUOTA_EXCEEDED",
            "not_written",
        )
        assert "client id 'a'" in problem["detail"]
        other = await broker.client.post(PRODUCE, BODY)
        assert other.status == 200

    asyncio.run(main())


def test_a_client_without_its_own_quota_has_the_defaults_by_itself() -> None:
    async def main() -> None:
        broker = fake_broker(quotas=(ClientQuota("", produce_bytes_per_second=300),))
        for name in ("a", "b"):
            responses = [
                await broker.client.post(PRODUCE, BODY, **{"tidemark-client-id": name})
                for _ in range(2)
            ]
            assert statuses(responses) == [200, 429]

    asyncio.run(main())


def test_a_reader_above_its_quota_waits_for_the_next_answer() -> None:
    async def main() -> None:
        broker = fake_broker(quotas=(ClientQuota("a", fetch_bytes_per_second=300),))
        await broker.client.post(PRODUCE, BODY)
        responses = [
            await broker.client.get(RECORDS, **{"tidemark-client-id": "a"}) for _ in range(2)
        ]
        assert statuses(responses) == [200, 429]
        assert (await broker.client.get(RECORDS)).status == 200

    asyncio.run(main())
