"""The metrics of the groups that a broker coordinates, all of them together.

Nothing is labelled with a group: there may be thousands of them, of clients' own naming.
"""

from collections.abc import Iterator

from tidemark_broker.groups.classic_group import GroupState
from tidemark_broker.groups.counts import GroupCensus, GroupCounts
from tidemark_broker.runtime.metrics import Family, MetricsProfile

GROUPS = Family("groups", "gauge", "Groups that this broker coordinates, by state.")
MEMBERS = Family("group_members", "gauge", "Members of these groups.")
OFFSETS = Family("group_offsets", "gauge", "Partitions that these groups have committed.")
REBALANCES = Family(
    "group_rebalances_total", "counter", "Generations whose members were all told of it."
)
COMMITS = Family("group_offset_commits_total", "counter", "Offsets that were committed.")


def render_groups(
    census: GroupCensus, counts: GroupCounts, profile: MetricsProfile
) -> Iterator[str]:
    if not profile.includes(GROUPS.profile):
        return
    yield GROUPS.head
    for state in GroupState:
        yield GROUPS.sample(census.groups[state.value], state=state.value)
    for family, value in (
        (MEMBERS, census.members),
        (OFFSETS, census.offsets),
        (REBALANCES, counts.completed_rebalances),
        (COMMITS, counts.committed_offsets),
    ):
        yield family.head
        yield family.sample(value)
