"""Every client writes in every codec, plain and idempotent, and reads what every other wrote."""

import pytest
from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tidemark_broker.kafka_wire.records.record_batch import BatchHeader, read_header

from tests.compatibility.client_programs import CLIENTS, CODECS, ClientPrograms, able
from tests.support.kafka_cluster import Sending, librdkafka_settings
from tests.support.local_cluster import LocalCluster

pytestmark = pytest.mark.cluster
COUNT = 100
TOPIC = "codecs"


@pytest.fixture(scope="module")
def sent(cluster: LocalCluster) -> list[str]:
    """What is acknowledged in the topic so far: something of every codec at least."""
    found = []
    for number, codec in enumerate(CODECS):
        values = [b"%d.%d" % (100 + number, value) for value in range(COUNT)]
        sending = Sending(cluster, **{"compression.type": codec, "linger.ms": 20})
        sending.send(values, topic=TOPIC)
        sending.flush()
        assert sending.failed == []
        found += [value.decode() for value in values]
    return found


def stored_after(cluster: LocalCluster, end_offset: int) -> list[BatchHeader]:
    """Batches that lie on the leader's disk from there on: the topic has one small segment."""
    leader = cluster.partition(0, TOPIC)["leader"]
    (segment,) = cluster.data_dir.glob(f"brokers/*/{leader}/{TOPIC}-0/*.log")
    data, found, position = segment.read_bytes(), [], 0
    while position < len(data):
        header = read_header(data, position)
        position += header.size_bytes
        if header.base_offset >= end_offset:
            found.append(header)
    return found


def produce(
    programs: ClientPrograms, cluster: LocalCluster, client: str, codec: str, *, idempotent: bool
) -> list[BatchHeader]:
    prefix = 10 * CLIENTS.index(client) + CODECS.index(codec) + 1000 * (idempotent + 1)
    how = {"prefix": prefix, "count": COUNT, "codec": codec}
    if idempotent:
        how["idempotent"] = True
    before = stored_after(cluster, 0)[-1].next_offset
    program = programs.run(client, "produce", cluster, TOPIC, **how)
    wanted = [f"{prefix}.{number}" for number in range(COUNT)]
    assert sorted(program.values("producer_send_success")) == sorted(wanted)
    found = stored_after(cluster, before)
    assert sum(header.record_count for header in found) == COUNT
    # A client may leave alone what does not shrink, as a batch of one record.
    assert CODECS.index(codec) in {header.compression for header in found}
    return found


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("client", CLIENTS)
def test_produces(
    programs: ClientPrograms, cluster: LocalCluster, sent: list[str], client: str, codec: str
) -> None:
    found = produce(programs, cluster, client, codec, idempotent=False)
    assert {header.producer_id for header in found} == {-1}
    prefix = 10 * CLIENTS.index(client) + CODECS.index(codec) + 1000
    sent += [f"{prefix}.{number}" for number in range(COUNT)]


@pytest.mark.parametrize("client", able("idempotent"))
def test_produces_idempotently(
    programs: ClientPrograms, cluster: LocalCluster, sent: list[str], client: str
) -> None:
    found = produce(programs, cluster, client, "lz4", idempotent=True)
    assert len({header.producer_id for header in found}) == 1
    assert found[0].producer_id >= 0
    prefix = 10 * CLIENTS.index(client) + CODECS.index("lz4") + 2000
    sent += [f"{prefix}.{number}" for number in range(COUNT)]


@pytest.mark.parametrize("client", CLIENTS)
def test_consumes(
    programs: ClientPrograms, cluster: LocalCluster, sent: list[str], client: str
) -> None:
    program = programs.run(client, "consume", cluster, TOPIC)
    assert sorted(program.values("record_data")) == sorted(sent)
    offsets = [event["offset"] for event in program.named("record_data")]
    assert offsets == list(range(len(sent)))


@pytest.fixture(scope="module")
def compacted(cluster: LocalCluster) -> str:
    topic = NewTopic("compacted", 1, 3, config={"cleanup.policy": "compact"})
    admin = AdminClient(librdkafka_settings(cluster))
    admin.create_topics([topic])["compacted"].result()
    cluster.wait_until_in_sync("compacted")
    return "compacted"


def test_records_without_a_key_are_blamed_alone(cluster: LocalCluster, compacted: str) -> None:
    """KIP-467: of a batch that is refused librdkafka tells which records were the reason. (Of one
    record alone it tells the same of all, as it has only the error of the batch then.)"""
    reported: dict[str | bytes | None, int] = {}

    def delivered(error: KafkaError | None, message: Message) -> None:
        assert error is not None
        reported[message.value()] = error.code()

    producer = Producer(librdkafka_settings(cluster) | {"linger.ms": 500})
    for key, value in ((b"a", b"0"), (None, b"1"), (b"c", b"2"), (None, b"3")):
        producer.produce(compacted, value, key, partition=0, on_delivery=delivered)
    producer.flush(30)
    other, blamed = KafkaError._INVALID_DIFFERENT_RECORD, KafkaError.INVALID_RECORD
    assert reported == {b"0": other, b"1": blamed, b"2": other, b"3": blamed}


@pytest.mark.parametrize("codec", CODECS)
def test_a_compacted_topic_takes(cluster: LocalCluster, compacted: str, codec: str) -> None:
    sending = Sending(cluster, **{"compression.type": codec, "linger.ms": 20})
    values = [b"x" * 100 + b"%d" % number for number in range(COUNT)]
    sending.send(values, topic=compacted, key=codec)
    sending.flush()
    assert (sending.failed, sending.acknowledged) == ([], values)
