"""A pool with an authority of its own, and clients with certificates, on real pods."""

import base64
import json
import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from tidemark_operator.security.certificate_authority import Authority, UserSubject

from tests.kubernetes.kube_cluster import ON_KUBERNETES, OPERATOR_NAMESPACE, KubeCluster, topic
from tests.support.waiting import wait_for

pytestmark = [
    *ON_KUBERNETES,
    pytest.mark.timeout(400),
]

PKI = Authority.create("Shop PKI", now_s=int(time.time()), life_s=90 * 86_400)
CLIENTS = Authority.create("Shop clients", now_s=int(time.time()), life_s=90 * 86_400)
POOL: dict[str, Any] = {
    "apiVersion": "tidemark.dev/v1alpha1",
    "kind": "BrokerPool",
    "metadata": {"name": "default"},
    "spec": {
        "replicas": 1,
        "storage": {"size": "1Gi"},
        "security": {
            "authentication": "kubernetes",
            "tls": {"mode": "Required", "authority": {"secretName": "pki"}},
            "clientAuthority": {"configMapName": "clients"},
        },
        "listeners": [{"name": "outside", "type": "NodePort"}],
    },
}
SHAKE = """
import os, ssl, urllib.request, urllib.error
context = ssl.create_default_context(cafile="/etc/tidemark/trust/ca.crt")
if os.environ.get("WITH") == "certificate":
    context.load_cert_chain("/tmp/user.pem")
try:
    url = "https://default-bootstrap:8080/topics"
    print(urllib.request.urlopen(url, context=context, timeout=10).status)
except urllib.error.HTTPError as error:
    print(error.code)
"""
NAMES = """
import socket, ssl
context = ssl.create_default_context(cafile="/etc/tidemark/trust/ca.crt")
with socket.create_connection(("127.0.0.1", 9094)) as plain:
    with context.wrap_socket(plain, server_hostname="localhost") as stream:
        print([name for _, name in stream.getpeercert()["subjectAltName"]])
"""


def _secret(authority: Authority) -> dict[str, Any]:
    files = {"tls.crt": authority.certificate_pem, "tls.key": authority.key_pem}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "pki"},
        "data": {name: base64.b64encode(text.encode()).decode() for name, text in files.items()},
    }


def _object(kind: str, name: str, **more: Any) -> dict[str, Any]:
    version = "rbac.authorization.k8s.io/v1" if kind.startswith("Role") else "v1"
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, **more}


def _condition(cluster: KubeCluster) -> dict[str, Any]:
    status = cluster.must_get("brokerpool", "default").get("status") or {}
    found: list[dict[str, Any]] = status.get("conditions", [])
    return next((each for each in found if each["type"] == "AuthorityUsable"), {})


@pytest.fixture(scope="module")
def cluster() -> Iterator[KubeCluster]:
    cluster = KubeCluster.of_rig(f"test-{uuid.uuid4().hex[:8]}")
    cluster.install_chart()
    cluster.make_namespace()
    cluster.apply(_secret(PKI))
    cluster.apply(_object("ConfigMap", "clients", data={"ca.crt": CLIENTS.certificate_pem}))
    cluster.apply(POOL)
    yield cluster
    cluster.delete_namespace()


def test_the_secret_is_used_once_the_operator_may_get_it(cluster: KubeCluster) -> None:
    wait_for(
        "the condition", lambda: "allow it by a Role" in _condition(cluster).get("message", "")
    )
    rule = {"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["pki"], "verbs": ["get"]}
    cluster.apply(_object("Role", "tidemark-authority", rules=[rule]))
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "tidemark-authority"}
    subject = {
        "kind": "ServiceAccount",
        "name": "tidemark-operator",
        "namespace": OPERATOR_NAMESPACE,
    }
    cluster.apply(_object("RoleBinding", "tidemark-authority", roleRef=role, subjects=[subject]))
    cluster.apply(topic("orders", partitions=1, replicationFactor=1))
    cluster.wait_ready("orders", timeout_s=180)
    wait_for("the condition", lambda: _condition(cluster).get("status") == "True", seconds=90)
    status = cluster.must_get("brokerpool", "default")["status"]["certificates"]
    assert status["authority"] == PKI.fingerprint
    assert cluster.must_get("configmap", "default-trust")["data"]["ca.crt"] == PKI.certificate_pem


def test_the_certificate_names_the_node(cluster: KubeCluster) -> None:
    node = cluster.must_get("pod", "default-0")["status"]["hostIP"]
    names = cluster.kubectl("exec", "default-0", "--", "python3", "-c", NAMES)
    assert node in names


def test_a_client_with_a_certificate_is_a_user_of_rbac(cluster: KubeCluster) -> None:
    found = CLIENTS.issue_with_key(UserSubject("orders"), now_s=int(time.time()), life_s=3600)
    text = json.dumps(found.key_pem + found.certificate.pem)
    write = f"open('/tmp/user.pem', 'w').write({text})"
    cluster.kubectl("exec", "default-0", "--", "python3", "-c", write)

    def status(*environment: str) -> str:
        command = ("env", *environment, "python3", "-c", SHAKE)
        return cluster.kubectl("exec", "default-0", "--", *command).strip()

    assert status() == "401"
    assert status("WITH=certificate") == "200"


def test_a_changed_secret_is_a_roll_over(cluster: KubeCluster) -> None:
    following = Authority.create("Shop PKI 2", now_s=int(time.time()), life_s=90 * 86_400)
    cluster.apply(_secret(following))

    def is_trusted() -> bool:
        trusted = cluster.must_get("configmap", "default-trust")["data"]["ca.crt"]
        return bool(trusted == PKI.certificate_pem + following.certificate_pem)

    wait_for("both authorities", is_trusted, seconds=120)
    cluster.apply(_secret(following) | {"data": {"tls.crt": "", "tls.key": ""}})
    wait_for("the condition", lambda: _condition(cluster).get("status") == "False", seconds=150)
    assert is_trusted()
