"""Certificate authorities of pools on Kubernetes, and what brokers are named."""

import asyncio
import ipaddress
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from cryptography import x509
from tidemark_broker.security.private_key import PrivateKey
from tidemark_operator.api.kinds import BROKER_POOL, CONFIG_MAP, POD, SECRET
from tidemark_operator.manager.operator_tls import OperatorTls
from tidemark_operator.security.broker_identity import BrokerIdentity
from tidemark_operator.security.broker_trust import BrokerTrust
from tidemark_operator.store.sqlite import SqliteStore
from tidemark_protocol.access_messages import (
    SIGN_CERTIFICATE_PATH,
    SignCertificateRequest,
    SignCertificateResponse,
)
from tidemark_protocol.controller_messages import decode, encode
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import BrokerId

from tests.support.api_objects import broker_pool

SPEC: dict[str, Any] = {
    "replicas": 1,
    "image": "image",
    "storage": {"size": "1Gi"},
    "security": {"tls": {"mode": "Required"}},
    "listeners": [
        {
            "name": "outside",
            "type": "NodePort",
            "port": 9094,
            "advertisedHost": "kafka.example.org",
        },
        {"name": "lab", "type": "NodePort", "port": 9095, "advertisedHost": "192.0.2.7"},
    ],
}


def with_tls(
    path: Path, scenario: Callable[[OperatorTls, SqliteStore], Awaitable[None]], **spec: Any
) -> None:
    async def main() -> None:
        store = SqliteStore(path / "objects.db")
        pool = {
            "apiVersion": "tidemark.dev/v1alpha1",
            "kind": "BrokerPool",
            "metadata": {"namespace": "shop", "name": "default"},
            "spec": SPEC | spec,
        }
        await store.create(BROKER_POOL, pool)
        tls = OperatorTls(
            store,
            "operators",
            wall_clock_s=lambda: 1e9,
            is_leading=lambda: True,
            trust=BrokerTrust(),
        )
        try:
            await scenario(tls, store)
        finally:
            store.close()

    asyncio.run(main())


async def signed(tls: OperatorTls, pool: str = "shop/default") -> SignCertificateResponse:
    request = SignCertificateRequest(pool, BrokerId(0), PrivateKey().request_pem("x"))
    sender = BrokerIdentity(pool, BrokerId(0))
    answer = await tls.calls()[SIGN_CERTIFICATE_PATH](sender, encode(request))
    return decode(answer, SignCertificateResponse)


def test_broker_is_named_by_its_services_pod_and_advertised_hosts(tmp_path: Path) -> None:
    async def scenario(tls: OperatorTls, store: SqliteStore) -> None:
        metadata = {"namespace": "shop", "name": "default-0"}
        ips = [{"ip": "10.0.0.5"}, {"ip": "fd00::5"}]
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "status": {"podIPs": ips}}
        await store.create(POD, pod)
        response = await signed(tls)
        certificate = x509.load_pem_x509_certificate(response.certificate_pem.encode())
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        names = found.get_values_for_type(x509.DNSName)
        assert names[0] == "broker-0.default.shop.tidemark.internal"
        assert {
            "default-bootstrap.shop.svc.cluster.local",
            "default-0.shop.svc",
            "default-outside-bootstrap.shop",
            "default-outside-0",
            "kafka.example.org",
        } <= set(names)
        addresses = set(map(str, found.get_values_for_type(x509.IPAddress)))
        assert {"10.0.0.5", "fd00::5", "192.0.2.7"} <= addresses
        assert ipaddress.ip_address("127.0.0.1") in found.get_values_for_type(x509.IPAddress)

    with_tls(tmp_path, scenario)


def test_keys_of_authorities_are_in_the_namespace_of_the_operator(tmp_path: Path) -> None:
    async def scenario(tls: OperatorTls, store: SqliteStore) -> None:
        await tls.ensure_trust(broker_pool(**SPEC))
        assert await store.list(SECRET, "shop") == []
        found = [each["metadata"]["name"] for each in await store.list(SECRET, "operators")]
        assert found == ["shop.default-ca", "tidemark-controller-ca"]
        trust = await store.get(CONFIG_MAP, "shop", "default-trust")
        assert trust is not None
        assert trust["data"]["ca.crt"].count("BEGIN") == 1
        assert trust["data"]["all.crt"].count("BEGIN") == 2
        await tls.ensure_trust(broker_pool(**SPEC))
        again = await store.get(CONFIG_MAP, "shop", "default-trust")
        assert again == trust, "what is so already is not written"

    with_tls(tmp_path, scenario)


def test_broker_is_not_named_before_its_pod_has_an_address(tmp_path: Path) -> None:
    async def scenario(tls: OperatorTls, store: SqliteStore) -> None:
        response = await signed(tls)
        assert response.error is ErrorCode.UNKNOWN_SERVER_ERROR
        assert "no address yet" in response.message

    with_tls(tmp_path, scenario)


def test_pool_without_tls_gets_no_certificate(tmp_path: Path) -> None:
    async def scenario(tls: OperatorTls, store: SqliteStore) -> None:
        assert (await signed(tls)).error is ErrorCode.INVALID_REQUEST
        assert (await signed(tls, "shop/other")).error is ErrorCode.INVALID_REQUEST

    with_tls(tmp_path, scenario, security={"tls": {"mode": "Disabled"}})
