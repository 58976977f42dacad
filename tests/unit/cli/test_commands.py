"""The command line: exit codes, JSON, errors that say what to do."""

import json
from pathlib import Path

import pytest
from tidemark_chaos.environments.kubernetes import load_pod_manifest
from tidemark_cli.arguments import parse, parser
from tidemark_cli.main import main
from tidemark_client.errors import CommandFailed
from tidemark_client.idempotent_producer import murmur2, partition_of_key
from tidemark_client.manifests import read_manifests

COMMANDS = (
    "dev",
    "apply",
    "topics",
    "status",
    "produce",
    "consume",
    "load",
    "verify",
    "demo",
    "bench",
    "move",
    "drain",
    "elect",
    "groups",
)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parser().parse_args([command, "--help"])
    assert ended.value.code == 0
    assert f"usage: tidemark {command}" in capsys.readouterr().out


def test_wrong_usage_is_exit_code_2() -> None:
    with pytest.raises(SystemExit) as ended:
        main(["produce"])
    assert ended.value.code == 2


def test_options_may_stand_before_the_values_of_produce() -> None:
    parsed = parse(["produce", "orders", "-p", "2", "a", "-k", "key", "b"])
    assert (parsed.topic, parsed.partition, parsed.key) == ("orders", 2, "key")
    assert parsed.values == ["a", "b"]
    with pytest.raises(SystemExit):
        parse(["produce", "orders", "-p", "2", "a", "--nonsense"])


def test_an_unknown_option_names_the_commands_own_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(["status", "--nonsense"])
    assert ended.value.code == 2
    assert (
        "unrecognized arguments: --nonsense; see `tidemark status --help`"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("options", "reported"),
    [
        (["--http-port", "99999"], "expected --http-port from 1 to 65533"),
        (["--kafka-port", "65534"], "expected --kafka-port from 1 to 65533"),
        (["--controller-port", "-1"], "expected --controller-port from 1 to 65535"),
        (["--kafka-port", "18081"], "found port 18081 for --http-port and --kafka-port"),
        (["--controller-port", "18082"], "port 18082 for --controller-port and --http-port"),
        (["--brokers", "0"], "expected --brokers from 1 to 100"),
        (["--brokers", "100000"], "expected --brokers from 1 to 100"),
    ],
)
def test_ports_that_cannot_be_had_together_are_refused_before_anything_begins(
    options: list[str], reported: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["dev", "--data-dir", str(tmp_path / "data"), *options]) == 2
    assert reported in capsys.readouterr().err
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("option", ["--window", "--settle", "--start", "--scrape-interval"])
def test_a_time_that_is_none_is_refused_with_its_option(
    option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["audit", "http://127.0.0.1:1", option, "soon"]) == 4
    written = capsys.readouterr().err
    assert f"error: expected {option} such as " in written
    assert "found 'soon'" in written


def test_an_unreachable_server_says_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["produce", "orders", "x", "--server", "127.0.0.1:1"])
    written = capsys.readouterr().err
    assert code == 1
    for word in ("error: ", "what to do:"):
        assert word in written


def test_records_do_not_travel_through_the_kubernetes_api(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TIDEMARK_SERVER", raising=False)
    (tmp_path / "config").write_text("")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    assert main(["produce", "orders", "x", "-n", "shop"]) == 2
    assert "--server http://HOST:8080" in capsys.readouterr().err


def test_an_error_is_json_where_json_was_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", "--load", "/nowhere", "-o", "json"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert set(error) == {"message", "expected", "found", "toDo"}


def test_a_load_file_of_something_else_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "x").write_text("hello\n")
    assert main(["verify", "--load", str(tmp_path / "x")]) == 2
    assert "1 lines are not events" in capsys.readouterr().err


def test_manifests_are_read_and_strange_ones_refused() -> None:
    good = "apiVersion: tidemark.dev/v1alpha1\nkind: Topic\nmetadata: {name: a}\n"
    assert [document["metadata"]["name"] for document in read_manifests(f"{good}---\n{good}")] == [
        "a",
        "a",
    ]
    for bad in ("", "a: [", "just words", "kind: Topic\n", "- 1\n"):
        with pytest.raises(CommandFailed):
            read_manifests(bad)


def test_keys_are_placed_as_kafka_places_them() -> None:
    # org.apache.kafka.common.utils.UtilsTest.testMurmur2
    expected = {
        b"21": -973932308,
        b"foobar": -790332482,
        b"a-little-bit-long-string": -985981536,
        b"a-little-bit-longer-string": -1486304829,
        b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
        b"abc": 479470107,
    }
    signed = {key: murmur2(key) - (1 << 32 if murmur2(key) >> 31 else 0) for key in expected}
    assert signed == expected
    assert partition_of_key(b"abc", 3) == 479470107 % 3


def test_the_load_pod_runs_the_load_and_stays() -> None:
    manifest = load_pod_manifest(10.0, topic="orders", options=("--acks", "1"))
    (container,) = manifest["spec"]["containers"]
    assert container["image"] == "tidemark/broker:dev"
    load = container["command"][2]
    assert "tidemark load orders --server https://default-bootstrap:8080" in load
    assert " --acks 1 " in load


def test_the_audit_without_its_packages_says_how_to_get_them(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if "p" in name else name)
    assert main(["audit", "http://127.0.0.1:1"]) == 4
    written = capsys.readouterr().err
    assert "error: Packages of the audit are not installed: numpy, pyarrow, pys" in written
    assert "make setup-audit" in written
