"""Test how brokers of different steps reach each other."""

from tidemark_broker.security.peer_addresses import PeerAddresses
from tidemark_protocol.controller_messages import Endpoints
from tidemark_protocol.ids import BrokerId

from tests.support.certificates import TestPool

LEADER = BrokerId(1)
WITHOUT_TLS = Endpoints("10.0.0.1", 9092, 8080, "http://a")
WITH_TLS = Endpoints("10.0.0.1", 9092, 8080, "https://a", 9091, has_tls=True)


def test_broker_without_certificate_calls_all_others_plain() -> None:
    addresses = PeerAddresses()
    for endpoints, port in ((WITHOUT_TLS, 9092), (WITH_TLS, 9091)):
        found = addresses.replication(LEADER, endpoints)
        assert (found.port, found.context) == (port, None)


def test_broker_with_optional_tls_uses_it_where_the_other_has_it() -> None:
    tls = TestPool().broker(2)
    addresses = PeerAddresses(tls, allows_plain=True)
    assert addresses.replication(LEADER, WITHOUT_TLS).context is None
    assert addresses.http(LEADER, WITHOUT_TLS).url == "http://10.0.0.1:8080"
    assert addresses.replication(LEADER, WITH_TLS).context is tls.peers_out
    assert addresses.http(LEADER, WITH_TLS).url == "https://10.0.0.1:8080"


def test_broker_that_requires_tls_never_calls_plain() -> None:
    tls = TestPool().broker(2)
    assert PeerAddresses(tls).replication(LEADER, WITHOUT_TLS).context is tls.peers_out
