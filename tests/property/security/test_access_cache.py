"""The cache of accesses against a model: nothing stale is used, nothing unknown is allowed."""

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tidemark_broker.security.access_cache import GRACE_MS, STALE_MS, AccessCache
from tidemark_protocol.access_messages import Access, Principal, ResourceKind, Verb

MOST = 12
principals = st.sampled_from([Principal(name) for name in "abc"])
accesses = st.builds(
    Access,
    st.sampled_from([Verb.PRODUCE, Verb.CONSUME]),
    st.just(ResourceKind.TOPIC),
    st.sampled_from(["", "x", "y", "z"]),
)


class CacheModel(RuleBasedStateMachine):
    """`told` has all that was ever told: the cache may forget, but not invent or keep too long."""

    def __init__(self) -> None:
        super().__init__()
        self.cache = AccessCache(most_entries=MOST)
        self.told: dict[tuple[Principal, Access], tuple[bool, int]] = {}
        self.now_ms = 0
        self.is_away = False

    @rule(ms=st.sampled_from([1, 9_999, 10_000, 20_000, 30_000, 600_000, 3_600_000]))
    def time_passes(self, ms: int) -> None:
        self.now_ms += ms

    @rule(
        principal=principals,
        results=st.dictionaries(accesses, st.booleans(), min_size=1, max_size=8),
        age_ms=st.sampled_from([0, 1, 19_999]),
    )
    def controller_responds(
        self, principal: Principal, results: dict[Access, bool], age_ms: int
    ) -> None:
        reviewed_ms = self.now_ms - age_ms
        self.cache.record(principal, list(results), list(results.values()), reviewed_ms)
        for access, is_allowed in results.items():
            self.told[principal, access] = (is_allowed, reviewed_ms)
        self.is_away = False

    @rule()
    def controller_is_silent(self) -> None:
        self.cache.record_failure(self.now_ms)
        self.is_away = True

    @rule(principal=principals, access=accesses)
    def client_asks(self, principal: Principal, access: Access) -> None:
        limit_ms = GRACE_MS if self.is_away else STALE_MS
        every = Access(access.verb, access.kind)
        fresh = [
            self.told[principal, each][0]
            for each in (access, every)
            if (principal, each) in self.told
            and self.now_ms - self.told[principal, each][1] < limit_ms
        ]
        known = self.cache.known(principal, access, self.now_ms)
        assert known is not True or True in fresh
        assert known is not False or False in fresh

    @invariant()
    def it_is_bounded(self) -> None:
        assert len(self.cache) <= MOST


TestCacheModel = CacheModel.TestCase
TestCacheModel.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


@given(st.lists(accesses, max_size=6), st.dictionaries(accesses, st.booleans()))
def test_all_that_is_unknown_is_asked_for(
    wanted: list[Access], recorded: dict[Access, bool]
) -> None:
    cache, principal = AccessCache(), Principal("a")
    if recorded:
        cache.record(principal, list(recorded), list(recorded.values()), 0)
    unknown = {access for access in wanted if cache.known(principal, access, 0) is None}
    questions = cache.questions(principal, unknown, 0)
    assert unknown <= set(questions)
    assert len(set(questions)) == len(questions)
    cache.record(principal, questions, [False] * len(questions), 0)
    assert all(cache.known(principal, access, 0) is not None for access in unknown)
