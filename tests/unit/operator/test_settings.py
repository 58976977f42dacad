"""The operator's settings from the environment of its pod."""

import pytest
from tidemark_operator.main import SettingsError, read_settings

POD = {"POD_NAME": "a", "POD_NAMESPACE": "ns", "POD_UID": "u", "POD_IP": "10.0.0.1"}


def test_actions_of_the_live_page_are_off_unless_switched_on() -> None:
    assert not read_settings(POD).has_web_actions
    assert not read_settings(POD | {"TIDEMARK_WEB_ACTIONS": "false"}).has_web_actions
    assert read_settings(POD | {"TIDEMARK_WEB_ACTIONS": "true"}).has_web_actions
    with pytest.raises(SettingsError, match="TIDEMARK_WEB_ACTIONS: expected true or false"):
        read_settings(POD | {"TIDEMARK_WEB_ACTIONS": "yes"})
