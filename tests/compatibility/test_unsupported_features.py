"""What a client cannot do anywhere is its own lack: shown by what it says of itself."""

import re
import subprocess

import pytest

from tests.compatibility.client_programs import ClientPrograms
from tests.support.client_tools import ROOT

pytestmark = pytest.mark.cluster


def said(*command: str, directory: str = ".") -> str:
    done = subprocess.run(
        command, cwd=ROOT / directory, capture_output=True, text=True, timeout=60, check=False
    )
    return done.stdout + done.stderr


def test_kcat_has_no_admin_requests(programs: ClientPrograms) -> None:
    """Its modes are Consume, Produce, Metadata list, Query, and Groups."""
    modes = [line for line in said("kcat", "-h").splitlines() if " Mode: " in line]
    flags = {flag for line in modes for flag in re.findall(r"-([A-Z])\b", line.split("Mode:")[0])}
    assert flags == set("CPLQG")


def test_kafka_go_has_no_idempotent_producer() -> None:
    module = "github.com/segmentio/kafka-go"
    writer = said("go", "doc", "-all", f"{module}.Writer", directory="tests/compatibility/go")
    assert "RequiredAcks" in writer
    assert "idempot" not in writer.lower()
