"""Define the limits of consumer groups. Names and defaults are Kafka's, unless noted."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GroupSettings:
    offsets_partitions: int = 50  # offsets.topic.num.partitions, when the topic is made
    min_session_timeout_ms: int = 6_000  # group.min.session.timeout.ms
    max_session_timeout_ms: int = 1_800_000  # group.max.session.timeout.ms
    initial_rebalance_delay_ms: int = 3_000  # group.initial.rebalance.delay.ms
    # How long a member without a session yet (its join is waiting) is believed in.
    new_member_join_timeout_ms: int = 300_000
    max_members: int = 1_000  # group.max.size; Kafka has no limit, we bound memory
    max_member_bytes: int = 256 * 1024  # protocols of one member, ours
    max_protocols: int = 32  # of one member, ours
    max_group_bytes: int = 900 * 1024  # a group's record must fit into a batch of 1 MiB, ours
    max_name_bytes: int = 1_024  # group, member, instance and client ids, ours
    max_groups: int = 20_000  # of one partition, ours
    max_offsets: int = 50_000  # of one group, ours
    max_offset_metadata: int = 4_096  # characters; offset.metadata.max.bytes
    offsets_retention_ms: int = 7 * 24 * 3_600_000  # offsets.retention.minutes
    expiry_check_ms: int = 600_000  # offsets.retention.check.interval.ms
    records_per_append: int = 500  # of an expiry, ours: a batch stays small
