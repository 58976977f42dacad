"""Certificate authorities of pools on Kubernetes, and what brokers are named."""

import asyncio
import ipaddress
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from tidemark_broker.security.private_key import PrivateKey
from tidemark_operator.api.kinds import BROKER_POOL, CONFIG_MAP, POD, SECRET, SERVICE
from tidemark_operator.broker_runtime.broker_runtime import ObservedPool
from tidemark_operator.manager.operator_tls import OperatorTls
from tidemark_operator.reconcile.pool.plan import pool_conditions
from tidemark_operator.resources.names import broker_labels, listener_service_name
from tidemark_operator.resources.service import listener_service_manifest
from tidemark_operator.security.broker_identity import BrokerIdentity
from tidemark_operator.security.broker_trust import BrokerTrust
from tidemark_operator.store.object_store import Rejected
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


def names_of(response: SignCertificateResponse) -> set[str]:
    certificate = x509.load_pem_x509_certificate(response.certificate_pem.encode())
    found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    addresses = map(str, found.get_values_for_type(x509.IPAddress))
    return {*found.get_values_for_type(x509.DNSName), *addresses}


async def put_pod(store: SqliteStore, broker_id: int, node: str) -> None:
    labels = broker_labels("default", BrokerId(broker_id))
    status = {"podIPs": [{"ip": f"10.0.0.{broker_id}"}], "hostIP": node}
    metadata = {"namespace": "shop", "name": f"default-{broker_id}", "labels": labels}
    await store.create(
        POD, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "status": status}
    )


def test_nodes_and_load_balancers_are_names_of_brokers(tmp_path: Path) -> None:
    listeners = [
        {"name": "nodes", "type": "NodePort", "port": 9094},
        {"name": "cloud", "type": "LoadBalancer", "port": 9095},
        {"name": "open", "type": "LoadBalancer", "port": 9096, "tls": False},
    ]
    pool = broker_pool(**(SPEC | {"listeners": listeners}))

    async def scenario(tls: OperatorTls, store: SqliteStore) -> None:
        await put_pod(store, 0, "192.0.2.1")
        await put_pod(store, 1, "192.0.2.2")
        services: list[tuple[str, BrokerId | None]] = []
        for listener in pool.spec.listeners:
            for door_to in (None, BrokerId(0), BrokerId(1)):
                service = listener_service_manifest(pool, listener, door_to)
                await store.create(SERVICE, service)
                services.append((listener.name, door_to))
        first = await signed(tls)
        assert {"192.0.2.1", "192.0.2.2"} <= names_of(first)
        assert first.check_after_ms == 5_000, "there is no load balancer yet"
        for name_of, door_to in services:
            if name_of == "nodes":
                continue
            name = listener_service_name("default", name_of, door_to)
            stored = await store.get(SERVICE, "shop", name)
            assert stored is not None
            host = f"{name_of}-{'all' if door_to is None else door_to}.example.org"
            stored["status"] = {"loadBalancer": {"ingress": [{"hostname": host}]}}
            await store.replace_status(SERVICE, stored)
        second = await signed(tls)
        added = {each for each in names_of(second) if each.endswith(".example.org")}
        assert added == {"cloud-all.example.org", "cloud-0.example.org"}
        assert second.check_after_ms == 60_000

    with_tls(tmp_path, scenario, listeners=listeners)


def test_a_pool_without_changing_addresses_is_not_asked_again(tmp_path: Path) -> None:
    async def scenario(tls: OperatorTls, store: SqliteStore) -> None:
        await put_pod(store, 0, "192.0.2.1")
        response = await signed(tls)
        assert response.check_after_ms == 0
        assert "192.0.2.1" not in names_of(response)

    with_tls(tmp_path, scenario)


def test_an_authority_that_cannot_be_used_is_told_and_no_other_is_made(tmp_path: Path) -> None:
    security = {"tls": {"mode": "Required", "authority": {"secretName": "pki"}}}

    async def scenario(tls: OperatorTls, store: SqliteStore) -> None:
        pool = broker_pool(**(SPEC | {"security": security}))
        with pytest.raises(Rejected, match="Secret shop/pki: not found"):
            await tls.ensure_trust(pool)
        found = tls.certificates_of("shop/default")
        assert found is not None
        assert (found.issuer, found.secret_name) == ("", "pki")
        (condition,) = [
            each
            for each in pool_conditions(pool, ObservedPool((), certificates=found), frozenset())
            if each.type == "AuthorityUsable"
        ]
        assert not condition.is_true
        assert "not found; create it" in condition.message
        assert [each["metadata"]["name"] for each in await store.list(SECRET, "operators")] == [
            "tidemark-controller-ca"
        ]

    with_tls(tmp_path, scenario, security=security)
