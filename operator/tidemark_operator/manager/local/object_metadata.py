"""Check an object's metadata as the API server does: names, labels, annotations.

A schema of a CRD does not cover them, so local mode has to.
"""

import re
from collections.abc import Iterator
from typing import Any

from tidemark_operator.api.kinds import Object

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_NAME_PART = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_VALUE = f"({_NAME_PART})?"
SUBDOMAIN_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.',"
    " and must start and end with an alphanumeric character (e.g. 'example.com', regex used for"
    f" validation is '{_SUBDOMAIN}')"
)
_NAME_PART_RULE = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end"
    " with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for"
    f" validation is '{_NAME_PART}')"
)
_VALUE_RULE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.',"
    " and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or"
    f" '12345', regex used for validation is '{_VALUE}')"
)
MAX_NAME, MAX_PART, MAX_ANNOTATIONS_BYTES = 253, 63, 256 * 1024
KNOWN_FIELDS = frozenset(
    {
        *("name", "generateName", "namespace", "selfLink", "uid", "resourceVersion", "generation"),
        *("creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "labels"),
        *("annotations", "ownerReferences", "finalizers", "managedFields"),
    }
)


def metadata_faults(metadata: Object, namespace: str) -> Iterator[str]:
    """Yield faults; `namespace` is the only one that exists."""
    name = metadata["name"]
    if len(name) > MAX_NAME:
        yield _invalid("metadata.name", name, f"must be no more than {MAX_NAME} characters")
    if not re.fullmatch(_SUBDOMAIN, name):
        yield _invalid("metadata.name", name, SUBDOMAIN_RULE)
    for field in metadata.keys() - KNOWN_FIELDS:
        yield f'unknown field "metadata.{field}"'
    found = metadata.get("namespace", namespace)
    if found != namespace:
        yield f'namespaces "{found}" not found: local mode has only {namespace}'
    for field in ("labels", "annotations"):
        yield from _map_faults(f"metadata.{field}", metadata.get(field))


def _map_faults(path: str, found: Any) -> Iterator[str]:
    if found is None:
        return
    if not isinstance(found, dict):
        yield f"{path}: expected an object, found {found!r:.80}"
        return
    for name, value in found.items():
        yield from _key_faults(path, str(name))
        if not isinstance(value, str):
            yield f"{path}.{name}: expected a string, found {value!r:.80} (put it in quotes)"
        elif path.endswith("labels"):
            if len(value) > MAX_PART:
                yield _invalid(path, value, f"must be no more than {MAX_PART} characters")
            if not re.fullmatch(_VALUE, value):
                yield _invalid(path, value, _VALUE_RULE)
    size = sum(len(str(name).encode()) + len(str(found[name]).encode()) for name in found)
    if path.endswith("annotations") and size > MAX_ANNOTATIONS_BYTES:
        yield f"{path}: Too long: may not be more than {MAX_ANNOTATIONS_BYTES} bytes"


def _key_faults(path: str, key: str) -> Iterator[str]:
    prefix, slash, name = key.rpartition("/")
    if slash and (len(prefix) > MAX_NAME or not re.fullmatch(_SUBDOMAIN, prefix)):
        yield _invalid(path, key, f"prefix part {SUBDOMAIN_RULE}")
    if len(name) > MAX_PART:
        yield _invalid(path, key, f"name part must be no more than {MAX_PART} characters")
    # Keys of annotations may have capitals in their name parts, and so may those of labels.
    if not re.fullmatch(_NAME_PART, name):
        yield _invalid(path, key, _NAME_PART_RULE)


def _invalid(path: str, value: str, rule: str) -> str:
    return f'{path}: Invalid value: "{value[:300]}": {rule}'
