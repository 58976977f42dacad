"""A BrokerPool as a typed value: its name, and its quotas and settings of groups."""

from tidemark_operator.api.broker_pool import GROUP_SETTINGS, QuotaSpec
from tidemark_protocol.controller_messages import ClientQuota

from tests.support.api_objects import broker_pool


def test_a_pool_is_named_with_its_namespace() -> None:
    assert broker_pool().pool == "shop/default"


def test_a_limit_that_a_quota_does_not_name_stays_unlimited_and_zero_is_a_limit() -> None:
    assert QuotaSpec(client_id="a").client_quota == ClientQuota("a")
    limited = QuotaSpec(client_id="", produce_bytes_per_second=0, request_percentage=50)
    assert limited.client_quota == ClientQuota("", 0, None, 50)
    limited = QuotaSpec(client_id="", fetch_bytes_per_second=7)
    assert limited.client_quota == ClientQuota("", None, 7, None)


def test_a_pool_without_quotas_has_none() -> None:
    assert broker_pool().spec.quotas == ()


def test_each_setting_of_groups_has_a_flag_of_the_broker() -> None:
    known = {"offsetsRetentionMinutes": 1, "initialRebalanceDelayMs": 0}
    assert broker_pool(groups=known).spec.groups == known
    assert GROUP_SETTINGS.keys() == known.keys()
