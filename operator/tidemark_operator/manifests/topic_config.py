"""Kafka's topic configs: which Tidemark knows, their defaults and what they may hold.

A config that does not work yet is refused, or accepted only with the value that says so: nothing
is ever ignored in silence. The same rules stand as CEL in crds/topics.yaml; a test compares them.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class IntegerConfig:
    name: str
    minimum: int
    maximum: int
    default: int

    def fault(self, value: str) -> str | None:
        digits = len(str(self.maximum))
        is_number = re.fullmatch(f"[0-9]{{1,{digits}}}", value) is not None
        if is_number and self.minimum <= int(value) <= self.maximum:
            return None
        return f"{self.name} must be an integer from {self.minimum} to {self.maximum}"


@dataclass(frozen=True, slots=True)
class FixedConfig:
    """Known, and accepted only with the one value that is true of Tidemark today."""

    name: str
    only_value: str
    reason: str

    def fault(self, value: str) -> str | None:
        if value == self.only_value:
            return None
        return f'{self.name} can only be "{self.only_value}" for now: {self.reason}'


# Brokers read these from their own settings only, as yet.
_SAME_FOR_ALL = "it is the same for all topics"
MIN_INSYNC_REPLICAS = "min.insync.replicas"

KNOWN_CONFIGS: tuple[IntegerConfig | FixedConfig, ...] = (
    FixedConfig("cleanup.policy", "delete", "compaction is not built yet"),
    FixedConfig("index.interval.bytes", "4096", _SAME_FOR_ALL),
    IntegerConfig("max.message.bytes", 1024, 8 * 1024 * 1024, 1_048_588),
    # Its default is min(2, replicationFactor): see effective_config.
    IntegerConfig(MIN_INSYNC_REPLICAS, 1, 10, 2),
    # Kafka's default is 30000: ours notices a stuck follower sooner (docs/architecture.md).
    IntegerConfig("replica.lag.time.max.ms", 100, 3_600_000, 10_000),
    FixedConfig("retention.bytes", "-1", "retention is not built yet, everything is kept"),
    FixedConfig("retention.ms", "-1", "retention is not built yet, everything is kept"),
    FixedConfig("segment.bytes", "1073741824", _SAME_FOR_ALL),
    FixedConfig("segment.ms", "604800000", _SAME_FOR_ALL),
    FixedConfig("unclean.leader.election.enable", "false", "unclean election is not built yet"),
)
KNOWN_NAMES = tuple(config.name for config in KNOWN_CONFIGS)
# Names whose meaning is plain and whose spelling is near another name.
_MEANT = {
    "min.isr": "min.insync.replicas",
    "retention": "retention.ms",
    "retention.time.ms": "retention.ms",
}
_BY_NAME = {config.name: config for config in KNOWN_CONFIGS}


def config_faults(config: Mapping[str, str], replication_factor: int) -> Iterator[str]:
    """Sentences, in the order of the names."""
    for name in sorted(config):
        known = _BY_NAME.get(name)
        fault = unknown_config_sentence(name) if known is None else known.fault(config[name])
        if fault is not None:
            yield fault
    wanted = config.get(MIN_INSYNC_REPLICAS, "")
    if re.fullmatch("[0-9]{1,2}", wanted) and int(wanted) > replication_factor:
        yield (
            f"{MIN_INSYNC_REPLICAS} is more than replicationFactor, so no record could ever be "
            "acknowledged with acks=all"
        )


def unknown_config_sentence(name: str) -> str:
    return (
        f'unknown config "{name}"; the nearest known name is "{nearest_name(name)}"; '
        f"known names are {', '.join(KNOWN_NAMES)}"
    )


def effective_config(config: Mapping[str, str], replication_factor: int) -> dict[str, str]:
    """What holds: the given values, and the default of each other known name."""
    defaults = {
        known.name: str(known.default) if isinstance(known, IntegerConfig) else known.only_value
        for known in KNOWN_CONFIGS
    }
    defaults[MIN_INSYNC_REPLICAS] = str(min(2, replication_factor))
    return defaults | dict(config)


def nearest_name(name: str) -> str:
    """The known name that the fewest edits make of `name`; case and separators count little."""
    if name in _MEANT:
        return _MEANT[name]
    plain = re.sub(r"[_\-\s]", ".", re.sub(r"(?<=[a-z])(?=[A-Z])", ".", name[:64])).lower()
    return min(KNOWN_NAMES, key=lambda known: (_edit_distance(plain, known), known))


def _edit_distance(left: str, right: str) -> int:
    """Levenshtein: insertions, deletions and replacements of one character each."""
    previous = list(range(len(right) + 1))
    for row, left_character in enumerate(left, start=1):
        current = [row]
        for column, right_character in enumerate(right, start=1):
            replaced = previous[column - 1] + (left_character != right_character)
            current.append(min(replaced, previous[column] + 1, current[-1] + 1))
        previous = current
    return previous[-1]
