"""Check Kafka's topic names, and derive the names of their Topic objects.

A topic whose name can be an object's has it: `kubectl get topic orders`. For others (capitals,
underscores) the object is `<lower-case-slug>-<hash8>`. The hash is of pool and name, so that each
creator derives the same name, and another pool's topic has another one.
"""

import hashlib
import re

OFFSETS_TOPIC = "__consumer_offsets"


MAX_TOPIC_NAME = 249
MAX_OBJECT_NAME = 200  # slices are named after it
MAX_SLUG = 100
_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]+")
_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_OBJECT_NAME = re.compile(rf"{_LABEL}(\.{_LABEL})*")  # RFC 1123 subdomain


def topic_name_fault(topic: str) -> str:
    """Return a sentence about an invalid name, or "".

    As Kafka's Topic.validate, except for `a.b` beside `a_b`, which nothing here confuses.
    """
    if topic in ("", ".", "..") or len(topic) > MAX_TOPIC_NAME or not _TOPIC_NAME.fullmatch(topic):
        return (
            f"topic {topic[:MAX_TOPIC_NAME]!r}: expected 1 to {MAX_TOPIC_NAME} letters, digits,"
            ' ".", "_" and "-", and not "." or ".."'
        )
    return ""


def object_names(pool: str, topic: str) -> tuple[str, ...]:
    """Return names for the Topic object, best first; `pool` is namespace/name."""
    slug = re.sub("[^a-z0-9]+", "-", topic.lower())[:MAX_SLUG].strip("-") or "topic"
    digest = hashlib.sha256(f"{pool}/{topic}".encode()).hexdigest()
    made = f"{slug}-{digest[:8]}"
    is_plain = len(topic) <= MAX_OBJECT_NAME and _OBJECT_NAME.fullmatch(topic) is not None
    return (topic, made) if is_plain else (made,)
