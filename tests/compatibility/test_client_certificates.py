"""Unmodified clients that certificates alone make known (mTLS), at `tidemark dev --tls --auth`."""

import ssl
import subprocess
import time
import urllib.error
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer

from tests.compatibility.programs.java_program import java
from tests.support.client_tools import tool
from tests.support.kafka_cluster import LIMIT_SECONDS, bootstrap, librdkafka_settings
from tests.support.local_cluster import LocalCluster, get_json, running
from tests.support.waiting import wait_for

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    path = tmp_path_factory.mktemp("certified")
    environment = {"XDG_STATE_HOME": str(path / "state")}
    with running(
        path / "data", is_tls=True, arguments=("--auth",), environment=environment
    ) as cluster:
        cluster.wait_until_in_sync()
        yield cluster


def user_file(cluster: LocalCluster, user: str, kind: str) -> Path:
    return cluster.data_dir / "tls" / "users" / f"{user}.{kind}"


def certified(cluster: LocalCluster, user: str, **more: Any) -> dict[str, Any]:
    """Settings of librdkafka: mTLS, and no SASL."""
    return librdkafka_settings(
        cluster,
        **{
            "security.protocol": "SSL",
            "ssl.ca.location": str(cluster.ca_file),
            "ssl.certificate.location": str(user_file(cluster, user, "crt")),
            "ssl.key.location": str(user_file(cluster, user, "key")),
            **more,
        },
    )


def produce(settings: dict[str, Any]) -> list[KafkaError]:
    failed: list[KafkaError] = []
    producer = Producer({"acks": "all", "delivery.timeout.ms": 10_000, **settings})
    for number in range(20):
        producer.produce(
            "orders",
            b"%d" % number,
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )
    assert producer.flush(LIMIT_SECONDS) == 0
    return failed


def test_librdkafka_produces_and_consumes_in_a_group(closed: LocalCluster) -> None:
    assert produce(certified(closed, "producer")) == []
    settings = {"group.id": f"g{time.monotonic_ns()}", "auto.offset.reset": "earliest"}
    consumer = Consumer(certified(closed, "consumer", **settings))
    consumer.subscribe(["orders"])
    seen: list[bytes] = []

    def has_all() -> bool:
        seen.extend(each.value() or b"" for each in consumer.consume(100, 0.5) if not each.error())
        return len(seen) >= 20

    try:
        wait_for("20 records", has_all)
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()


def test_what_a_certified_client_may_do_is_what_its_role_says(closed: LocalCluster) -> None:
    failed = produce(certified(closed, "consumer"))
    assert {error.code() for error in failed} == {KafkaError.TOPIC_AUTHORIZATION_FAILED}


def test_a_client_without_a_certificate_is_not_served(closed: LocalCluster) -> None:
    settings = {"security.protocol": "SSL", "ssl.ca.location": str(closed.ca_file)}
    producer = Producer(librdkafka_settings(closed, **settings, log_level=0))
    with pytest.raises(Exception, match=r"_TRANSPORT|timed out|Local"):
        producer.list_topics(timeout=3)


def test_tokens_and_certificates_are_both_known_at_one_port(closed: LocalCluster) -> None:
    def oauth(_: str) -> tuple[str, float]:
        return closed.token("producer"), time.time() + 3600

    sasl = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER", "oauth_cb": oauth}
    anonymous = {"ssl.ca.location": str(closed.ca_file)}
    assert produce(librdkafka_settings(closed, **sasl, **anonymous)) == []
    # With both, the token counts.
    assert produce(certified(closed, "consumer", **sasl)) == []


def test_java_with_pem_files(closed: LocalCluster, tmp_path: Path) -> None:
    keys = tmp_path / "producer.pem"
    keys.write_text(
        user_file(closed, "producer", "key").read_text()
        + user_file(closed, "producer", "crt").read_text()
    )
    settings = tmp_path / "client.properties"
    settings.write_text(
        "security.protocol=SSL\nssl.truststore.type=PEM\nssl.keystore.type=PEM\n"
        f"ssl.truststore.location={closed.ca_file}\nssl.keystore.location={keys}\n"
        "retries=10\n"  # a leader may move; the tool's own is none
    )
    where = ["--bootstrap-server", ",".join(bootstrap(closed)), "--topic", "orders"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIDEMARK_KAFKA_JARS", tool("kafka/jars"))
        command = java("VerifiableProducer", *where, "--max-messages", "5", "--acks", "-1")
    done = subprocess.run(
        [*command, "--command-config", str(settings)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.stdout.count("producer_send_success") == 5, done.stdout + done.stderr


def test_http(closed: LocalCluster) -> None:
    url = f"{closed.broker_url(0)}/topics"
    context = ssl.create_default_context(cafile=str(closed.ca_file))
    with pytest.raises(urllib.error.HTTPError, match="401"):
        get_json(url, context=context)
    names = [user_file(closed, "viewer", kind) for kind in ("crt", "key")]
    context.load_cert_chain(*names)
    assert "orders" in str(get_json(url, context=context))


def test_keys_of_users_are_for_their_owner_alone(closed: LocalCluster) -> None:
    assert user_file(closed, "admin", "key").stat().st_mode & 0o777 == 0o600
