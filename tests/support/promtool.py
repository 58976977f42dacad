"""Prometheus' own binaries, Debian's if none are installed."""

import subprocess
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@cache
def prometheus_binaries() -> Path:
    """The directory with prometheus and promtool. Raises CalledProcessError, with the reason."""
    found = subprocess.run(
        [ROOT / "hack" / "prometheus" / "binaries"], stdout=subprocess.PIPE, text=True, check=True
    )
    return Path(found.stdout.strip())


def faults_of_metrics(exposition: str) -> str:
    """What `promtool check metrics` says of a scrape's text; empty: nothing."""
    found = subprocess.run(
        [prometheus_binaries() / "promtool", "check", "metrics"],
        input=exposition,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=60,
    )
    return found.stdout or ("" if found.returncode == 0 else f"exit code {found.returncode}")
