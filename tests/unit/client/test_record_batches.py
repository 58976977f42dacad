"""A batch of the client is one that the broker reads, record by record."""

import pytest
from tidemark_broker.kafka_wire.records.record_batch import check_crc, read_header, read_records
from tidemark_client.outcomes import OutgoingRecord, ProducerIdentity, RecordHeader
from tidemark_client.record_batches import encode_batch

NOW_MS = 1_764_000_000_000


def test_the_broker_reads_what_was_sent() -> None:
    records = [
        OutgoingRecord(b"plain"),
        OutgoingRecord(b"", b""),
        OutgoingRecord(None, b"tombstone"),
        OutgoingRecord(b"v" * 10_000, b"k", (RecordHeader("h", b"1"), RecordHeader("empty"))),
    ]
    batch = encode_batch(records, now_ms=NOW_MS)
    check_crc(read_header(batch), memoryview(batch))
    found = [
        (each.key, each.value, each.headers, each.timestamp_ms)
        for each in read_records(memoryview(batch))
    ]
    assert found == [
        (record.key, record.value, tuple((h.key, h.value) for h in record.headers), NOW_MS)
        for record in records
    ]


def test_each_record_keeps_its_own_time() -> None:
    times = [None, NOW_MS - 5, NOW_MS + 7, 0]
    batch = encode_batch([OutgoingRecord(b"v", timestamp_ms=each) for each in times], now_ms=NOW_MS)
    expected = [NOW_MS, NOW_MS - 5, NOW_MS + 7, 0]
    assert [each.timestamp_ms for each in read_records(memoryview(batch))] == expected
    assert read_header(batch).max_timestamp_ms == NOW_MS + 7


@pytest.mark.parametrize("numbered", [False, True])
def test_an_idempotent_producer_numbers_its_batch(numbered: bool) -> None:
    identity = (ProducerIdentity(7, 3), 41) if numbered else None
    header = read_header(encode_batch([OutgoingRecord(b"v")], now_ms=1, numbered_as=identity))
    found = (header.producer_id, header.producer_epoch, header.base_sequence)
    assert found == ((7, 3, 41) if numbered else (-1, -1, -1))
