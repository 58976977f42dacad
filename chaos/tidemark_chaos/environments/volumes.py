"""Give each broker of local mode a volume of its own, which can be full, slow or broken.

A volume is an ext4 in a file, mounted by a loop device: what fails there is the kernel's own. It
needs root. What a volume is made to do is undone by the functions here, by path alone, so that
another process can do it from the heal journal.

Below it is an empty file system that cannot be written to: while a broken volume is replaced, a
broker that starts does not take an empty directory for its data.
"""

import errno
import fcntl
import os
import shutil
import struct
import subprocess
import threading
import time
from contextlib import suppress
from pathlib import Path

VOLUME_BYTES = 1024 * 1024 * 1024  # of a sparse file: it takes what is written to it
BALLAST = "chaos-ballast"
TOOLS = ("mkfs.ext4", "mount", "umount")
LOOP_CONTROL = Path("/dev/loop-control")
CAP_SYS_ADMIN = 21
FIFREEZE, FITHAW = 0xC0045877, 0xC0045878
EXT4_IOC_SHUTDOWN = 0x8004587D
SYNC_FIRST = 0  # what was written is on the device; only what comes after fails
FREE_PART = 0.25  # of a slow volume: free for this part of the time for which it was frozen
TOOL_SECONDS = 30.0
BUSY_SECONDS = 10.0
POLL_SECONDS = 0.05


class VolumeError(Exception):
    """An error: a tool or the kernel refused; the text says which and why."""


def why_impossible() -> str:
    """Return why this machine cannot give brokers volumes; "" if it can."""
    needed = "each broker needs a volume of its own, an ext4 in a file, for which"
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        return f"{needed} {', '.join(missing)} is missing here"
    if not _may_mount():
        return f"{needed} root is needed (CAP_SYS_ADMIN)"
    if not LOOP_CONTROL.exists():
        return f"{needed} the kernel has no loop devices ({LOOP_CONTROL})"
    return ""


def _may_mount() -> bool:
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("CapEff:"):
                return bool(int(line.split()[1], 16) >> CAP_SYS_ADMIN & 1)
    return False


class Volume:
    """One broker's volume. Its methods block; they raise VolumeError."""

    def __init__(self, image: Path, path: Path) -> None:
        """`path` is where it is mounted: the broker's data directory."""
        self._image = image
        self.path = path
        self._is_mounted = False

    @property
    def ballast(self) -> Path:
        return self.path / BALLAST

    def create(self) -> None:
        """Make the file system and mount it."""
        self._image.parent.mkdir(parents=True, exist_ok=True)
        self.path.mkdir(parents=True, exist_ok=True)
        with self._image.open("wb") as file:
            file.truncate(VOLUME_BYTES)
        _run("mkfs.ext4", "-q", "-F", "-m", "0", str(self._image))
        _run("mount", "-t", "tmpfs", "-o", "ro,size=4k", "tidemark-chaos", str(self.path))
        self.mount()

    def mount(self) -> None:
        _run("mount", "-o", "loop", str(self._image), str(self.path))
        self._is_mounted = True

    def fill(self) -> None:
        """Take all of its free space."""
        descriptor = os.open(self.ballast, os.O_CREAT | os.O_WRONLY)
        try:
            wanted = VOLUME_BYTES
            while wanted >= os.statvfs(self.path).f_frsize:
                try:
                    os.posix_fallocate(descriptor, os.fstat(descriptor).st_size, wanted)
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise VolumeError(f"{self.ballast}: {error.strerror}") from error
                    wanted //= 2
        finally:
            os.close(descriptor)

    def empty(self) -> None:
        self.ballast.unlink(missing_ok=True)

    def slow(self, seconds: float, stop: threading.Event) -> None:
        """Freeze it for so long, again and again, until `stop` is set; it is thawed then."""
        try:
            while not stop.is_set():
                _control(self.path, FIFREEZE)
                stop.wait(seconds)
                thaw(self.path)
                stop.wait(seconds * FREE_PART)
        finally:
            thaw(self.path)

    def break_down(self) -> None:
        """Let each access fail from now on (EIO); what was written before is kept."""
        _control(self.path, EXT4_IOC_SHUTDOWN, struct.pack("I", SYNC_FIRST))

    def replace(self) -> None:
        """Mount a broken one again. Raises VolumeError while a process uses it."""
        if self._is_mounted:
            _run("umount", str(self.path))
            self._is_mounted = False
        self.mount()

    def keep(self) -> None:
        """Unmount it and leave what was on it in its directory."""
        kept = self.path.with_name(f"{self.path.name}.kept")
        shutil.copytree(self.path, kept, ignore=shutil.ignore_patterns("lost+found"))
        unmount(self.path)
        self.path.rmdir()
        kept.rename(self.path)


def thaw(path: Path) -> None:
    """Thaw a volume if it is frozen."""
    with suppress(VolumeError):
        _control(path, FITHAW)


def unmount(path: Path) -> None:
    """Unmount all that is mounted there; wait for a process that is about to end."""
    ends = time.monotonic() + BUSY_SECONDS
    while path.is_mount():
        try:
            _run("umount", str(path))
        except VolumeError:
            if time.monotonic() > ends:
                raise
            time.sleep(POLL_SECONDS)


def _control(path: Path, request: int, argument: bytes = bytes(4)) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.ioctl(descriptor, request, argument)
    except OSError as error:
        raise VolumeError(f"{path}: {error.strerror}") from error
    finally:
        os.close(descriptor)


def _run(*command: str) -> None:
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=TOOL_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise VolumeError(f"{' '.join(command)}: {error}") from error
    if ended.returncode != 0:
        raise VolumeError(f"{' '.join(command)}: {ended.stderr.strip()}")
