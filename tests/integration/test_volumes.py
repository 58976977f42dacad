"""Volumes of local brokers: full, slow and broken by the kernel, and healed. They need root."""

import errno
import subprocess
import threading
import time
from pathlib import Path

import pytest
from tidemark_chaos.environments.volumes import Volume, unmount, why_impossible

pytestmark = pytest.mark.cluster
ROOT = Path(__file__).parents[2]


def test_a_volume_is_full_slow_and_broken_and_heals(tmp_path: Path) -> None:
    if reason := why_impossible():
        assert_rejected(reason)
        return
    volume = Volume(tmp_path / "volumes" / "0.ext4", tmp_path / "data" / "0")
    try:
        volume.create()
        is_full_until_it_is_emptied(volume)
        is_slow_until_it_is_told_to_stop(volume)
        is_broken_until_it_is_replaced(volume)
        volume.keep()
        assert not volume.path.is_mount()
        assert (volume.path / "records").read_bytes() == b"abc"
    finally:
        unmount(volume.path)
    assert str(tmp_path) not in Path("/proc/mounts").read_text()


def is_full_until_it_is_emptied(volume: Volume) -> None:
    volume.fill()
    with pytest.raises(OSError, match="No space left") as caught:
        (volume.path / "more").write_bytes(b"a" * 100_000)
    assert caught.value.errno == errno.ENOSPC
    volume.empty()
    (volume.path / "more").write_bytes(b"a" * 100_000)


def is_slow_until_it_is_told_to_stop(volume: Volume) -> None:
    stop = threading.Event()
    slowing = threading.Thread(target=volume.slow, args=(0.5, stop))
    slowing.start()
    longest, ends = 0.0, time.monotonic() + 3
    while longest < 0.3 and time.monotonic() < ends:
        began = time.monotonic()
        (volume.path / "records").write_bytes(b"abc")
        longest = max(longest, time.monotonic() - began)
    stop.set()
    slowing.join()
    assert longest > 0.3
    began = time.monotonic()
    (volume.path / "records").write_bytes(b"abc")
    assert time.monotonic() - began < 0.3


def is_broken_until_it_is_replaced(volume: Volume) -> None:
    volume.break_down()
    with pytest.raises(OSError, match="Input/output error"):
        (volume.path / "records").read_bytes()
    with pytest.raises(OSError, match="Input/output error"):
        (volume.path / "records").write_bytes(b"xyz")
    volume.replace()
    assert (volume.path / "records").read_bytes() == b"abc", "what was written before is kept"


def test_a_broker_that_starts_without_its_volume_finds_nothing_to_write_to(tmp_path: Path) -> None:
    if reason := why_impossible():
        assert_rejected(reason)
        return
    volume = Volume(tmp_path / "0.ext4", tmp_path / "0")
    try:
        volume.create()
        subprocess.run(["umount", str(volume.path)], check=True)
        with pytest.raises(OSError, match="Read-only file system"):
            (volume.path / "meta").touch()
    finally:
        unmount(volume.path)


def assert_rejected(reason: str) -> None:
    command = (
        str(ROOT / ".venv/bin/tidemark"),
        "chaos",
        "check",
        "-f",
        "examples/chaos/disks.yaml",
    )
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 2
    assert ended.stderr.count(reason) == 7
