"""Settings of the operator's pod."""

import pytest
from tidemark_operator.main import SettingsError, read_settings

POD = {"POD_NAME": "a", "POD_NAMESPACE": "b", "POD_UID": "c", "POD_IP": "10.0.0.1"}


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, 10001),
        ({"TIDEMARK_POD_USER_ID": "1000650000"}, 1000650000),
        ({"TIDEMARK_POD_USER_ID": ""}, None),
    ],
)
def test_the_user_of_pods_is_set_or_left_to_the_platform(
    environment: dict[str, str], expected: int | None
) -> None:
    assert read_settings(POD | environment).pod_user_id == expected


@pytest.mark.parametrize("text", ["0", "-1", "root", "1.5"])
def test_another_user_is_rejected(text: str) -> None:
    with pytest.raises(SettingsError, match="TIDEMARK_POD_USER_ID"):
        read_settings(POD | {"TIDEMARK_POD_USER_ID": text})


@pytest.mark.parametrize(
    ("text", "expected"), [("*", ()), ("", ()), ("shop", ("shop",)), ("shop, web", ("shop", "web"))]
)
def test_the_namespaces_that_are_watched(text: str, expected: tuple[str, ...]) -> None:
    found = read_settings(POD | {"TIDEMARK_WATCH_NAMESPACES": text})
    assert found.watch_namespaces == expected
