"""The command line's grammar, as users of kubectl and rpk know it."""

import io
import json
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest
from rich.console import Console
from tidemark_cli import arguments
from tidemark_cli.arguments import parse
from tidemark_cli.main import main
from tidemark_cli.output import Output, with_camel_case
from tidemark_client import targets
from tidemark_client.errors import CommandFailed, not_found
from tidemark_client.local_brokers import LocalBroker, clusters, local_brokers, runs_dev


def ended(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[object, str, str]:
    with pytest.raises(SystemExit) as end:
        parse(words)
    written = capsys.readouterr()
    return end.value.code, written.out, written.err


def test_options_of_the_target_may_stand_before_the_command() -> None:
    for words in (
        ("-o", "json", "--server", "a:1", "status"),
        ("status", "-o", "json", "--server", "a:1"),
    ):
        parsed = parse(words)
        assert (parsed.output, parsed.server, parsed.pool) == ("json", ["a:1"], None)
    parsed = parse(["--pool", "p", "topics", "--server", "a:1", "create", "t", "-o", "json"])
    assert (parsed.pool, parsed.server, parsed.output) == ("p", ["a:1"], "json")


@pytest.mark.parametrize(
    ("words", "action", "group"),
    [
        ((), "list", None),
        (("-o", "json"), "list", None),
        (("list",), "list", None),
        (("g",), "describe", "g"),
        (("--server", "a:1", "g"), "describe", "g"),
        (("describe", "list"), "describe", "list"),
        (("delete", "g"), "delete", "g"),
    ],
)
def test_groups_have_actions_and_a_short_form(
    words: tuple[str, ...], action: str, group: str | None
) -> None:
    parsed = parse(["groups", *words])
    assert (parsed.action, getattr(parsed, "group", None)) == (action, group)


def test_the_version_loads_no_command(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(name: str) -> ModuleType:
        raise AssertionError(name)

    monkeypatch.setattr(arguments, "_module_of", load)
    lines = (["--version"], ["version"], ["-o", "json", "--version"], ["--version", "x"])
    for words in lines:
        with pytest.raises(SystemExit) as end:
            parse(words)
        assert end.value.code == 0


@pytest.mark.parametrize(
    ("words", "reported"),
    [
        (("satus",), "unknown command 'satus', did you mean status?"),
        (("-o", "json", "satus"), "did you mean status?"),
        (("topics", "crate", "t"), "unknown action 'crate', did you mean create?"),
        (("groups", "reset", "g", "--topic", "t"), "arguments are required: --to"),
        (("produce", "t", "x", "--ack", "1"), "unrecognized arguments: --ack 1, did you mean"),
        (("topics", "create", "t", "--partition", "2"), "did you mean --partitions?"),
        (
            ("topics", "delete", "t", "--yes"),  # an option of another action
            "unrecognized arguments: --yes; see `tidemark topics delete --help`",
        ),
        (("produce", "t", "x", "--acks", "2"), "unknown acks '2'"),
        (("dev", "--server", "a:1"), "unrecognized arguments: --server"),
        (("--server", "a:1", "dev"), "`tidemark dev` has no --server"),
    ],
)
def test_mistakes_are_told_with_the_nearest_name(
    words: tuple[str, ...], reported: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, written = ended(capsys, *words)
    assert code == 2
    assert reported in written


def test_version_and_help_are_where_they_are_looked_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for line in ("--version", "version", "-o json version"):
        assert ended(capsys, *line.split())[1].startswith("tidemark ")
    for words in ((), ("help",), ("--help",)):
        code, out, _ = ended(capsys, *words)
        assert code == 0
        assert "COMMAND" in out
    assert "usage: tidemark topics create" in ended(capsys, "help", "topics", "create")[1]
    assert "usage: tidemark status" in ended(capsys, "help", "status")[1]


def test_keys_in_json_are_camel_case_beside_the_former_ones() -> None:
    @dataclass
    class Row:
        broker_id: int
        in_sync_replicas: tuple[int, ...]

    row = {"brokerId": 1, "broker_id": 1, "inSyncReplicas": [2], "in_sync_replicas": [2]}
    assert with_camel_case({"some_topic": [Row(1, (2,))]}) == {"some_topic": [row]}


def test_an_error_begins_with_one_plain_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    Output(is_json=False).failure(not_found("Topic", "nope", ["orders"], to_do="choose"))
    lines = capsys.readouterr().err.splitlines()
    assert lines == ["error: Topic 'nope' not found. Topics: orders", "  what to do: choose"]
    Output(is_json=False).failure(CommandFailed("Too many.", expected="1", found="2"))
    lines = capsys.readouterr().err.splitlines()
    assert lines == ["error: Too many.", "  expected:   1", "  found:      2"]
    Output(is_json=True).failure(CommandFailed(expected="1", found="2", to_do="choose"))
    assert json.loads(capsys.readouterr().out)["error"] == {
        "message": "expected 1, found 2",
        "expected": "1",
        "found": "2",
        "toDo": "choose",
    }


def test_long_lists_of_names_are_cut() -> None:
    said = not_found("Topic", "x", range(30)).sentence
    assert said.endswith("18, 19 and 10 more")
    assert not_found("Topic", "x", []).sentence.endswith("Topics: none")


def test_local_brokers_say_where_their_controller_is(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    words = "python -m tidemark_broker.main --data-dir /d/brokers/default.default/0"
    command = f"{words} --controllers 127.0.0.1:27070".replace(" ", "\0")
    (tmp_path / "7" / "cmdline").write_text(command)
    (tmp_path / "8").mkdir()
    found = local_brokers(tmp_path)
    assert [(each.pid, each.data_dir) for each in found] == [(7, "/d")]
    assert clusters(found) == {"127.0.0.1:27070": found[0]}
    assert local_brokers(tmp_path / "none") == ()


def test_command_that_finds_no_controller_says_where_one_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    monkeypatch.delenv("TIDEMARK_SERVER", raising=False)
    monkeypatch.setattr(targets, "LOCAL_CONTROLLER_URL", "http://127.0.0.1:1")
    monkeypatch.setattr(targets, "local_brokers", lambda: (LocalBroker(7, "127.0.0.1:2", "/d"),))
    assert main(["status"]) == 2
    written = capsys.readouterr().err
    assert "http://127.0.0.1:2 (data in /d, not running: its brokers stop without it)" in written
    assert "start it again: tidemark dev --data-dir /d" in written
    monkeypatch.setattr(targets, "local_brokers", tuple)
    assert main(["status"]) == 2
    assert "error: No cluster found." in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "port"),
    [
        ("python /v/bin/tidemark dev --brokers 3", 17070),
        ("python -m tidemark_cli.main dev --controller-port 27070", 27070),
        ("python /v/bin/tidemark status", 0),
        ("vim dev", 0),
    ],
)
def test_dev_that_only_starts_is_found_by_its_port(command: str, port: int, tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "cmdline").write_text(command.replace(" ", "\0"))
    assert [each for each in (17070, 27070) if runs_dev(each, tmp_path)] == [port] * (port > 0)


def test_namespace_in_local_mode_is_no_kubeconfig_error(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    monkeypatch.delenv("TIDEMARK_SERVER", raising=False)
    assert main(["status", "-n", "shop"]) == 2
    assert "--context and --namespace need a kubeconfig" in capsys.readouterr().err


def test_progress_is_one_line_on_a_terminal_and_lines_elsewhere(
    capsys: pytest.CaptureFixture[str],
) -> None:
    output = Output(is_json=False)
    output.progress("1 of 2")
    output.progress("2 of 2")
    output.end_progress()
    assert capsys.readouterr().err == "1 of 2\n2 of 2\n"
    terminal = io.StringIO()
    output._errors = Console(file=terminal, force_terminal=True, width=20)
    output.progress("1 of 2")
    output.progress("a sentence that is wider than the terminal")
    output.end_progress()
    clear = "\r\x1b[K"
    assert terminal.getvalue() == f"{clear}1 of 2{clear}a sentence that is {clear}"
    silent = Output(is_json=True)
    silent.progress("1 of 2")
    silent.end_progress()
    assert capsys.readouterr().err == ""
