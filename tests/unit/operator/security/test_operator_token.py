"""The operator's own tokens at brokers: for one broker, one process and a few minutes."""

import pytest
from tidemark_operator.security.operator_token import (
    OPERATOR,
    STEP_S,
    OperatorTokens,
    operator_accesses,
)
from tidemark_protocol.access_messages import Access, ResourceKind, Verb
from tidemark_protocol.ids import BrokerId

POOL = "shop/default"
ONE = BrokerId(1)


class WallClock:
    now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def token_of(tokens: OperatorTokens, pool: str = POOL, broker_id: BrokerId = ONE) -> str:
    return tokens.authorization(pool, broker_id)["Authorization"].removeprefix("Bearer ")


def test_token_is_valid_until_its_end_at_its_broker_only() -> None:
    clock = WallClock()
    tokens = OperatorTokens(clock)
    token = token_of(tokens)
    found = tokens.review(POOL, ONE, token)
    assert found is not None
    assert found.principal == OPERATOR
    assert clock.now_s + STEP_S <= found.expires_at_ms / 1000 <= clock.now_s + 2 * STEP_S
    for pool, broker_id in ((POOL, BrokerId(2)), ("shop/other", ONE)):
        elsewhere = tokens.review(pool, broker_id, token)
        assert elsewhere is not None
        assert elsewhere.principal is None
    clock.now_s = found.expires_at_ms / 1000
    ended = tokens.review(POOL, ONE, token)
    assert ended is not None
    assert ended.principal is None
    assert token_of(tokens) != token


def test_token_of_another_process_is_rejected() -> None:
    token = token_of(OperatorTokens(WallClock()))
    found = OperatorTokens(WallClock()).review(POOL, ONE, token)
    assert found is not None
    assert found.principal is None


def test_token_with_another_end_is_rejected() -> None:
    tokens = OperatorTokens(WallClock())
    prefix, _, digest = token_of(tokens).split(".")
    found = tokens.review(POOL, ONE, f"{prefix}.9999999999.{digest}")
    assert found is not None
    assert found.principal is None


@pytest.mark.parametrize("rest", ["", ".", ".x.y", ".²³.00", ".-1.00", ".1", "." + "9" * 5000])
def test_malformed_operator_token_is_rejected(rest: str) -> None:
    found = OperatorTokens(WallClock()).review(POOL, ONE, "tidemark-operator" + rest)
    assert found is not None
    assert found.principal is None


@pytest.mark.parametrize("token", ["", "a.b.c", "tidemark-operators.1.2"])
def test_token_of_a_client_is_not_reviewed(token: str) -> None:
    assert OperatorTokens(WallClock()).review(POOL, ONE, token) is None


def test_operator_may_only_describe() -> None:
    accesses = [Access(verb, kind, "x") for verb in Verb for kind in ResourceKind]
    allowed = dict(zip(accesses, operator_accesses(accesses), strict=True))
    assert {access.verb for access, found in allowed.items() if found} == {Verb.DESCRIBE}
    assert sum(allowed.values()) == len(ResourceKind)
