"""The operator's settings of security: fail closed without them, and say what is wrong."""

from pathlib import Path

import pytest
from tidemark_operator.main import SettingsError, read_settings
from tidemark_operator.manager.cluster_security import SecuritySettings

POD = {
    "POD_NAME": "tidemark-operator-1",
    "POD_NAMESPACE": "tidemark-system",
    "POD_UID": "uid",
    "POD_IP": "10.0.0.9",
}


def test_without_settings_no_peer_and_no_old_broker_is_known() -> None:
    assert read_settings(POD).security == SecuritySettings(
        peer="", token_file=None, accepts_old_brokers=False, metrics_need_token=False
    )


def test_the_peer_has_the_operators_service_account() -> None:
    more = {
        "POD_SERVICE_ACCOUNT": "tidemark-operator",
        "TIDEMARK_CONTROLLER_TOKEN_FILE": "/token",
        "TIDEMARK_ACCEPT_OLD_BROKERS": "true",
        "TIDEMARK_METRICS_NEED_TOKEN": "true",
    }
    assert read_settings(POD | more).security == SecuritySettings(
        peer="system:serviceaccount:tidemark-system:tidemark-operator",
        token_file=Path("/token"),
        accepts_old_brokers=True,
        metrics_need_token=True,
    )


@pytest.mark.parametrize("text", ["", "yes", "True", "1"])
def test_a_flag_is_true_or_false(text: str) -> None:
    with pytest.raises(SettingsError, match="TIDEMARK_ACCEPT_OLD_BROKERS: expected true or false"):
        read_settings(POD | {"TIDEMARK_ACCEPT_OLD_BROKERS": text})
