"""The printed script completes in a real shell."""

import shutil
import subprocess
from pathlib import Path

import pytest
from tidemark_cli.arguments import COMMANDS
from tidemark_cli.main import main


def completed(script: str, *words: str) -> list[str]:
    """What bash offers for the last word, which may be empty."""
    quoted = " ".join(f"'{word}'" for word in ("tidemark", *words))
    program = f"COMP_WORDS=({quoted}); COMP_CWORD={len(words)}; _shtab_tidemark; "
    found = subprocess.run(
        ["bash", "-c", script + "\n" + program + 'printf "%s\\n" "${COMPREPLY[@]}"'],
        check=True,
        capture_output=True,
        text=True,
        timeout=30,
    )
    return found.stdout.split()


@pytest.fixture
def script(capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["completion", "bash"]) == 0
    return capsys.readouterr().out


def test_bash_completes_commands_their_actions_and_options(script: str) -> None:
    assert set(COMMANDS) <= set(completed(script, ""))
    assert completed(script, "topics", "cre") == ["create"]
    assert "--replication-factor" in completed(script, "topics", "create", "--rep")
    assert completed(script, "produce", "--acks", "a") == ["all"]


def test_bash_completes_files_where_a_path_is_expected(script: str, tmp_path: Path) -> None:
    (tmp_path / "topic.yaml").write_text("")
    assert completed(script, "apply", "--file", f"{tmp_path}/top") == [f"{tmp_path}/topic.yaml"]


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_get_a_script_of_their_own(
    shell: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["completion", shell]) == 0
    text = capsys.readouterr().out
    assert all(command in text for command in COMMANDS)
    if shutil.which(shell):
        (tmp_path / "script").write_text(text)
        subprocess.run([shell, "-n", tmp_path / "script"], check=True, timeout=30)


def test_an_unknown_shell_is_named_with_those_that_there_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        main(["completion", "bsh"])
    assert "did you mean bash?" in capsys.readouterr().err
