"""Build the Secret of a pool's certificate authorities, and the ConfigMap of those to trust.

The Secret holds private keys: only the operator reads it, and no pod mounts it. It has no owner: a
pool that is deleted and created again, with its data retained, keeps its authorities, and clients
that trust them.
"""

import base64
import binascii
from collections.abc import Mapping, Sequence

from tidemark_operator.api.kinds import Object
from tidemark_operator.resources.names import MANAGED_BY, POOL_LABEL

# On the Secret of a pool's authorities: the user's Secret that the newest comes from.
AUTHORITY_SOURCE_ANNOTATION = "tidemark.dev/authority-source"
AUTHORITY_SECRET_TYPE = "tidemark.dev/certificate-authority"
POOL_BUNDLE_KEY = "ca.crt"  # of the pool's brokers, for its clients
ALL_BUNDLE_KEY = "all.crt"  # these and the controller's, for brokers
_CERTIFICATE, _KEY = ".crt", ".key"


def authority_secret_name(pool_name: str) -> str:
    return f"{pool_name}-ca"


def trust_name(pool_name: str) -> str:
    """Return the name of the ConfigMap of authorities to trust."""
    return f"{pool_name}-trust"


def authority_secret(
    namespace: str,
    name: str,
    authorities: Sequence[tuple[int, str, str]],
    stored: Object | None,
    source: str = "",
) -> Object:
    """Return the Secret of authorities: (time of creation, certificates, key) each, as PEM.

    `source` is the user's Secret that the newest comes from.
    """
    data = {}
    for created_s, certificate_pem, key_pem in authorities:
        data[f"{created_s}{_CERTIFICATE}"] = base64.b64encode(certificate_pem.encode()).decode()
        data[f"{created_s}{_KEY}"] = base64.b64encode(key_pem.encode()).decode()
    base: Object = dict(stored or {})
    metadata = {**base.get("metadata", {}), "namespace": namespace, "name": name}
    metadata["labels"] = {
        **metadata.get("labels", {}),
        "app.kubernetes.io/managed-by": MANAGED_BY,
    }
    annotations = {**(metadata.get("annotations") or {}), AUTHORITY_SOURCE_ANNOTATION: source}
    if not source:
        del annotations[AUTHORITY_SOURCE_ANNOTATION]
    if annotations or "annotations" in metadata:
        metadata["annotations"] = annotations
    return base | {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": AUTHORITY_SECRET_TYPE,
        "metadata": metadata,
        "data": data,
    }


def source_of(secret: Object | None) -> str:
    """Return the user's Secret that the newest authority comes from, or ""."""
    annotations = ((secret or {}).get("metadata") or {}).get("annotations") or {}
    return str(annotations.get(AUTHORITY_SOURCE_ANNOTATION, ""))


def own_authority_of(secret: Object) -> tuple[str, str, str]:
    """Return a user's authority: its certificates (its own first), its key, those of the root.

    It has the keys that cert-manager writes. Raises ValueError with a text for the user.
    """
    data: Mapping[str, str] = secret.get("data") or {}
    found = {}
    for name in ("tls.crt", "tls.key", POOL_BUNDLE_KEY):
        if name not in data and name != POOL_BUNDLE_KEY:
            raise ValueError(f"expected the key {name}, found none")
        try:
            found[name] = base64.b64decode(data.get(name, ""), validate=True).decode()
        except (binascii.Error, UnicodeDecodeError) as error:
            raise ValueError(f"{name}: expected base64 of PEM: {error}") from error
    return found["tls.crt"], found["tls.key"], found[POOL_BUNDLE_KEY]


def authorities_of(secret: Object) -> list[tuple[int, str, str]]:
    """Return the authorities of a Secret, the oldest first.

    Raises ValueError with a text for the user.
    """
    data: Mapping[str, str] = secret.get("data") or {}
    found = []
    for name in data:
        created = name.removesuffix(_CERTIFICATE)
        if name == created or not created.isdecimal():
            continue
        key = data.get(f"{created}{_KEY}")
        if key is None:
            raise ValueError(f"{name}: expected {created}{_KEY} too, found none")
        try:
            pair = [base64.b64decode(text, validate=True).decode() for text in (data[name], key)]
        except (binascii.Error, UnicodeDecodeError) as error:
            raise ValueError(f"{name}: expected base64 of PEM: {error}") from error
        found.append((int(created), pair[0], pair[1]))
    return sorted(found)


def trust_config_map(
    namespace: str, pool_name: str, pool_bundle: str, all_bundle: str, stored: Object | None
) -> Object:
    """Return the ConfigMap, which clients of the pool may copy: it has no secrets."""
    base: Object = dict(stored or {})
    metadata = {**base.get("metadata", {}), "namespace": namespace, "name": trust_name(pool_name)}
    metadata["labels"] = {
        **metadata.get("labels", {}),
        "app.kubernetes.io/managed-by": MANAGED_BY,
        POOL_LABEL: pool_name,
    }
    data = {POOL_BUNDLE_KEY: pool_bundle, ALL_BUNDLE_KEY: all_bundle}
    return base | {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
