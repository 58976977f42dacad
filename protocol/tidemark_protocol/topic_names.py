"""Kafka's topic names, and the object names of the Topics that have them. Pure.

A topic whose name can be an object's has it: `kubectl get topic orders`. For others (capitals,
underscores) it is `<lower-case-slug>-<hash8>`, the hash over pool and name, so that it is the same
whoever makes it, and another pool's topic of that name has another one.
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
    """A sentence, or "" (as Kafka's Topic.validate, but for `a.b` beside `a_b`: nothing here mixes
    these two up)."""
    if topic in ("", ".", "..") or len(topic) > MAX_TOPIC_NAME or not _TOPIC_NAME.fullmatch(topic):
        return (
            f"topic {topic[:MAX_TOPIC_NAME]!r}: expected 1 to {MAX_TOPIC_NAME} letters, digits,"
            ' ".", "_" and "-", and not "." or ".."'
        )
    return ""


def object_names(pool: str, topic: str) -> tuple[str, ...]:
    """Names for its Topic object, best first. `pool`: namespace/name."""
    slug = re.sub("[^a-z0-9]+", "-", topic.lower())[:MAX_SLUG].strip("-") or "topic"
    digest = hashlib.sha256(f"{pool}/{topic}".encode()).hexdigest()
    made = f"{slug}-{digest[:8]}"
    is_plain = len(topic) <= MAX_OBJECT_NAME and _OBJECT_NAME.fullmatch(topic) is not None
    return (topic, made) if is_plain else (made,)
