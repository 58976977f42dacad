"""Check a topic's config against the table of known ones, and compute effective values.

The table is `tidemark_protocol.topic_configs`, which brokers read too.
"""

import re
from collections.abc import Iterator, Mapping

from tidemark_protocol.topic_configs import (
    KNOWN_CONFIGS,
    KNOWN_NAMES,
    MAX_COMPACTION_LAG_MS,
    MIN_COMPACTION_LAG_MS,
    MIN_INSYNC,
    MIN_INSYNC_REPLICAS,
    FixedConfig,
    canonical_value,
    integer_of,
)

# Names whose meaning is plain and whose spelling is near another name.
_MEANT = {
    "compaction.lag.ms": "min.compaction.lag.ms",
    "segment.size.bytes": "segment.bytes",
    "min.isr": "min.insync.replicas",
    "retention": "retention.ms",
    "retention.time.ms": "retention.ms",
}
_BY_NAME = {config.name: config for config in KNOWN_CONFIGS}


def config_faults(config: Mapping[str, str], replication_factor: int) -> Iterator[str]:
    """Yield a sentence for each invalid config, in the order of the names."""
    for name in sorted(config):
        known = _BY_NAME.get(name)
        fault = unknown_config_sentence(name) if known is None else known.fault(config[name])
        if fault is not None:
            yield fault
    if MIN_INSYNC_REPLICAS in config and integer_of(MIN_INSYNC, config) > replication_factor:
        yield (
            f"{MIN_INSYNC_REPLICAS} is greater than replicationFactor, so no record"
            " could be acknowledged with acks=all"
        )
    if integer_of(MIN_COMPACTION_LAG_MS, config) > integer_of(MAX_COMPACTION_LAG_MS, config):
        yield "min.compaction.lag.ms is greater than max.compaction.lag.ms"


def unknown_config_sentence(name: str) -> str:
    nearest = nearest_name(name)
    hint = f'the nearest known name is "{nearest}"; ' if nearest else ""
    return f'unknown config "{name}"; {hint}known names are {", ".join(KNOWN_NAMES)}'


def effective_config(config: Mapping[str, str], replication_factor: int) -> dict[str, str]:
    """Return the given values in their one spelling, and the default of each other config."""
    free = [known for known in KNOWN_CONFIGS if not isinstance(known, FixedConfig)]
    defaults = {known.name: known.default_text for known in free}
    defaults[MIN_INSYNC_REPLICAS] = str(min(2, replication_factor))
    found = defaults | {known.name: config[known.name] for known in free if known.name in config}
    return {name: canonical_value(name, value) for name, value in found.items()}


def nearest_name(name: str) -> str:
    """Return the known name that is the fewest edits from `name`, or "" if none is near.

    Case and separators count little.
    """
    if name in _MEANT:
        return _MEANT[name]
    plain = re.sub(r"[_\-\s]", ".", re.sub(r"(?<=[a-z])(?=[A-Z])", ".", name[:64])).lower()
    edits, nearest = min((_edit_distance(plain, known), known) for known in KNOWN_NAMES)
    return nearest if 2 * edits <= len(nearest) else ""


def _edit_distance(left: str, right: str) -> int:
    """Return the Levenshtein distance: insertions, deletions and replacements of a character."""
    previous = list(range(len(right) + 1))
    for row, left_character in enumerate(left, start=1):
        current = [row]
        for column, right_character in enumerate(right, start=1):
            replaced = previous[column - 1] + (left_character != right_character)
            current.append(min(replaced, previous[column] + 1, current[-1] + 1))
        previous = current
    return previous[-1]
