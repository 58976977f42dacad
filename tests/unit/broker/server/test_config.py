"""What a broker is told at its start."""

import pytest
from tidemark_broker.security.tls import TlsMode
from tidemark_broker.server.config import broker_configs, parse_settings

GIVEN = ["--broker-id", "0", "--pool", "shop/default", "--data-dir", "/d", "--controllers", "c:1"]


def test_listeners_are_named_ports_of_either_protocol() -> None:
    settings = parse_settings(
        [*GIVEN, "--listeners", "outside:9094,cloud:9095", "--http-listeners", "web:8081"]
    )
    assert settings.listeners == (("outside", 9094), ("cloud", 9095))
    assert settings.http_listeners == (("web", 8081),)


@pytest.mark.parametrize("flag", ["listeners", "http-listeners"])
@pytest.mark.parametrize("text", ["web", "web:", "web:x", "Web:1", "web:70000", "web:1,web:2"])
def test_listeners_that_cannot_be_end_the_start(
    flag: str, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        parse_settings([*GIVEN, f"--{flag}", text])
    assert f"--{flag} (TIDEMARK_{flag.upper().replace('-', '_')})" in capsys.readouterr().err


def test_topics_are_made_for_clients_only_if_that_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert not parse_settings(GIVEN).creates_topics
    assert parse_settings([*GIVEN, "--auto-create-topics-enable=true"]).creates_topics
    monkeypatch.setenv("TIDEMARK_AUTO_CREATE_TOPICS_ENABLE", "true")
    assert broker_configs(parse_settings(GIVEN))["auto.create.topics.enable"] == "true"
    monkeypatch.setenv("TIDEMARK_AUTO_CREATE_TOPICS_ENABLE", "yes")
    with pytest.raises(SystemExit):
        parse_settings(GIVEN)
    assert "TIDEMARK_AUTO_CREATE_TOPICS_ENABLE" in capsys.readouterr().err


@pytest.mark.parametrize("value", ["0", "10001"])
def test_default_partitions_are_checked(
    value: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert parse_settings(GIVEN).default_partitions == 1
    monkeypatch.setenv("TIDEMARK_NUM_PARTITIONS", "12")
    assert parse_settings(GIVEN).default_partitions == 12
    with pytest.raises(SystemExit):
        parse_settings([*GIVEN, f"--num-partitions={value}"])
    assert "expected 1 to 10000" in capsys.readouterr().err


def test_brokers_tell_what_their_pool_says_by_kafkas_names() -> None:
    arguments = ["--num-partitions=12", "--offsets-retention-minutes=7"]
    reported = broker_configs(parse_settings([*GIVEN, *arguments]))
    assert (reported["num.partitions"], reported["offsets.retention.minutes"]) == ("12", "7")
    assert reported["group.initial.rebalance.delay.ms"] == "3000"


def test_each_listener_authenticates_as_the_broker_unless_it_says_otherwise() -> None:
    assert parse_settings(GIVEN).authenticated_listeners == frozenset()
    listeners = ["--listeners=out:9094,in:9095", "--http-listeners=web:8081"]
    closed = parse_settings(
        [*GIVEN, *listeners, "--authentication=kubernetes", "--listener-authentication=out:none"]
    )
    assert closed.authenticated_listeners == {"", "in", "web"}
    assert broker_configs(closed)["listeners"].startswith("SASL_PLAINTEXT://")
    opened = parse_settings([*GIVEN, *listeners, "--listener-authentication=web:kubernetes"])
    assert opened.authenticated_listeners == {"web"}
    assert broker_configs(opened)["listeners"].startswith("PLAINTEXT://")


LISTENERS = ["--listeners=out:9094,in:9095", "--http-listeners=web:8081"]


def test_each_listener_has_tls_as_the_broker_unless_it_says_otherwise() -> None:
    arguments = [*GIVEN, *LISTENERS, "--ca-file=/ca", "--plain-listeners=out"]
    optional = parse_settings([*arguments, "--tls=optional", "--tls-listeners=in"])
    modes = {name: optional.tls.of(name) for name in ("", "out", "in", "web")}
    assert modes == {
        "": TlsMode.OPTIONAL,
        "out": TlsMode.DISABLED,
        "in": TlsMode.REQUIRED,
        "web": TlsMode.OPTIONAL,
    }
    assert optional.tls_listeners == {"in"}
    assert parse_settings([*arguments, "--tls=true"]).tls_listeners == {"in", "web"}
    assert parse_settings([*arguments, "--tls=false"]).tls.of("in") is TlsMode.DISABLED


@pytest.mark.parametrize(
    ("tls", "authentication", "has_port", "admits"),
    [
        ("false", "none", False, True),
        ("optional", "none", True, True),
        ("false", "optional", True, True),
        ("optional", "optional", True, True),
        ("true", "none", True, False),
        ("optional", "kubernetes", True, False),
        ("true", "kubernetes", True, False),
    ],
)
def test_followers_leave_ports_of_clients_when_not_everyone_may_do_everything(
    tls: str, authentication: str, has_port: bool, admits: bool
) -> None:
    found = parse_settings(
        [*GIVEN, "--ca-file=/ca", f"--tls={tls}", f"--authentication={authentication}"]
    )
    assert (found.has_replication_port, found.admits_old_followers) == (has_port, admits)


def test_listener_with_optional_authentication_asks_but_does_not_require() -> None:
    found = parse_settings([*GIVEN, *LISTENERS, "--authentication=optional"])
    assert found.authenticated_listeners == found.optional_listeners == {"", "out", "in", "web"}
    assert not found.requires_authentication("")
    assert broker_configs(found)["listeners"].startswith("PLAINTEXT://")


@pytest.mark.parametrize(
    "flag",
    ["--authentication=yes", "--listener-authentication=out", "--listener-authentication=a:yes"],
)
def test_another_authentication_is_rejected(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse_settings([*GIVEN, flag])
    assert "expected" in capsys.readouterr().err
