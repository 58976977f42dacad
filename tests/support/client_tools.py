"""Run the scripts of hack/ that build or fetch what tests use."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]


TOOL_SECONDS = 600.0  # a download or an installation


def tool(*command: str, seconds: float = TOOL_SECONDS) -> str:
    """What a script of hack/ prints last; where it fails, its words are the failure."""
    done = subprocess.run(
        [str(ROOT / "hack" / command[0]), *command[1:]],
        capture_output=True,
        text=True,
        check=False,
        timeout=seconds,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()[-1]
