"""A closed pool on kind that clients on the host reach, and the credentials of these clients."""

import base64
import json
import time
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from tests.kubernetes.kube_cluster import KubeCluster, topic

POOL = "default"
SECRET_LABEL = {"tidemark.dev/kafka-credentials": "true"}
SIGNING_KEY_FILE = "/etc/kubernetes/pki/sa.key"
ROLES = ("producer", "consumer", "viewer", "admin")


def closed_pool(host: str) -> dict[str, Any]:
    """Node ports are open at each node, so the address of one is that of all brokers."""
    outside = {"type": "NodePort", "advertisedHost": host}
    return {
        "apiVersion": "tidemark.dev/v1alpha1",
        "kind": "BrokerPool",
        "metadata": {"name": POOL},
        "spec": {
            "replicas": 3,
            "storage": {"size": "1Gi"},
            "security": {"tls": {"mode": "Required"}, "authentication": "kubernetes"},
            "listeners": [
                {"name": "outside", **outside},
                {"name": "web", "protocol": "HTTP", "port": 8081, **outside},
            ],
        },
    }


class ClosedPool:
    def __init__(self, cluster: KubeCluster) -> None:
        self.cluster = cluster

    def start(self) -> None:
        """Make the namespace, with a closed pool and the topic `orders` of it, and the accounts."""
        self.cluster.make_namespace()
        # In this order: helm makes a Role in the namespace.
        self.cluster.install_chart(f"credentialNamespaces={{{self.cluster.namespace}}}")
        self.cluster.apply(closed_pool(self._node_address()))
        self.cluster.apply(topic("orders", partitions=1, replicationFactor=3))
        for role in ROLES:
            self.add_account(role, f"tidemark-{role}")
        self.cluster.wait_ready("orders", timeout_s=180)
        self.cluster.until_in_sync("orders", timeout_s=90)

    def _node_address(self) -> str:
        nodes = self.cluster.items("nodes")
        worker = next(node for node in nodes if "worker" in node["metadata"]["name"])
        return next(
            str(each["address"])
            for each in worker["status"]["addresses"]
            if each["type"] == "InternalIP"
        )

    # How it is reached.

    def bootstrap(self, listener: str = "outside") -> str:
        """Return the bootstrap servers of a listener once it has them."""

        def servers() -> str:
            status = self.cluster.must_get("bpool", POOL).get("status", {})
            found = (each for each in status.get("listeners", []) if each["name"] == listener)
            return next((str(each["bootstrap"]) for each in found), "")

        self.cluster.until(lambda: bool(servers()), f"listener {listener} has bootstrap servers")
        return servers()

    def authorities(self, directory: Path) -> Path:
        """Return a file of what clients trust, written now."""
        trust = self.cluster.must_get("configmap", f"{POOL}-trust")["data"]["ca.crt"]
        file = directory / "ca.crt"
        file.write_text(trust)
        return file

    # Who is known.

    def account(self, name: str) -> str:
        return f"system:serviceaccount:{self.cluster.namespace}:{name}"

    def add_account(self, name: str, role: str = "") -> None:
        self.cluster.kubectl("create", "serviceaccount", name)
        if role:
            self.bind(name, role, f"--serviceaccount={self.cluster.namespace}:{name}")

    def bind(self, name: str, role: str, subject: str) -> None:
        self.cluster.kubectl("create", "rolebinding", name, f"--clusterrole={role}", subject)

    def add_user(self, username: str, password: str, principal: str = "") -> None:
        """Add a user with a password, in a Secret."""
        metadata: dict[str, Any] = {"name": f"user-{username}", "labels": SECRET_LABEL}
        if principal:
            metadata["annotations"] = {"tidemark.dev/principal": principal}
        data = {"username": username, "password": password}
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": data}
        self.cluster.apply(secret)

    # Tokens.

    @property
    def audience(self) -> str:
        return f"tidemark/{self.cluster.namespace}/{POOL}"

    def token(self, account: str, audience: str = "") -> str:
        wanted = f"--audience={audience or self.audience}"
        return self.cluster.kubectl("create", "token", account, wanted).strip()

    def expired_token(self, account: str) -> str:
        """Return a token of the cluster that ended a minute ago.

        The API server issues none for less than ten minutes, so it is signed here, with the API
        server's own key.
        """
        header, claims = parts(self.token(account))
        ended = int(time.time()) - 60
        claims |= {"iat": ended - 3600, "nbf": ended - 3600, "exp": ended}
        nodes = self.cluster.items("nodes")
        names = (node["metadata"]["name"] for node in nodes)
        control_plane = next(name for name in names if "control-plane" in name)
        read = self.cluster.run("docker", "exec", control_plane, "cat", SIGNING_KEY_FILE)
        assert read.code == 0, read.err
        key = serialization.load_pem_private_key(read.out.encode(), None)
        assert isinstance(key, rsa.RSAPrivateKey)
        return signed(header, claims, key)

    def forged_token(self, account: str) -> str:
        """Return the same claims as those of a valid token, signed by someone else."""
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        return signed(*parts(self.token(account)), key)


def parts(token: str) -> tuple[dict[str, Any], dict[str, Any]]:
    header, claims = (
        json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
        for part in token.split(".")[:2]
    )
    return header, claims


def signed(header: dict[str, Any], claims: dict[str, Any], key: rsa.RSAPrivateKey) -> str:
    text = ".".join(coded(json.dumps(part).encode()) for part in (header, claims))
    return f"{text}.{coded(key.sign(text.encode(), padding.PKCS1v15(), hashes.SHA256()))}"


def coded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
