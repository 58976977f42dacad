"""The settings of the controller of ChaosExperiments."""

import pytest
from tidemark_operator.chaos_main import SettingsError, read_settings

ENVIRONMENT = {
    "POD_NAMESPACE": "system",
    "TIDEMARK_CHAOS_NAMESPACES": "shop, test",
    "TIDEMARK_CHAOS_IMAGE": "image:1",
    "TIDEMARK_CHAOS_RESOURCES": '{"requests": {"cpu": "500m"}}',
}


def test_settings_come_from_the_pods_environment() -> None:
    settings = read_settings(ENVIRONMENT)
    assert settings.namespaces == ("shop", "test")
    assert (settings.jobs.image, settings.jobs.operator_namespace) == ("image:1", "system")
    assert settings.jobs.resources == {"requests": {"cpu": "500m"}}


def test_a_missing_setting_is_named() -> None:
    without = {**ENVIRONMENT, "TIDEMARK_CHAOS_NAMESPACES": ""}
    with pytest.raises(SettingsError, match="TIDEMARK_CHAOS_NAMESPACES"):
        read_settings(without)


@pytest.mark.parametrize("text", ["{", "[]"])
def test_resources_are_an_object(text: str) -> None:
    with pytest.raises(SettingsError, match="TIDEMARK_CHAOS_RESOURCES"):
        read_settings({**ENVIRONMENT, "TIDEMARK_CHAOS_RESOURCES": text})
