"""Run processes from the source tree of a former release, and later ones from this tree.

A process that runs keeps the code that it started with, imports that come late included. So old and
new processes serve together, as they do on Kubernetes while pods are replaced one by one.
"""

import io
import subprocess
import sys
import sysconfig
import tarfile
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
FORMER = "0967bba2720c37988a88c365135532d88253cdc7"
"""The commit before the source tree took its present layout. A later release takes its place."""
PACKAGE_FOLDERS = ("protocol", "client", "chaos", "operator", "broker_image", "cli", "audit")


def unpack_previous_release(directory: Path) -> Path:
    """Write the files of the former release into `directory`, which is made, and return it.

    Raises AssertionError if the checkout does not hold that commit, as a shallow clone does not.
    """
    archived = subprocess.run(
        ["git", "-C", str(REPOSITORY), "archive", FORMER],
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert archived.returncode == 0, f"fetch the whole history: {archived.stderr.decode()}"
    with tarfile.open(fileobj=io.BytesIO(archived.stdout)) as tar:
        tar.extractall(directory, filter="data")
    return directory


class Interpreter:
    """A virtual environment with this one's libraries, and Tidemark from a tree of choice."""

    def __init__(self, directory: Path) -> None:
        subprocess.run(
            [sys.executable, "-m", "venv", "--without-pip", str(directory)],
            check=True,
            timeout=60,
        )
        self.path = directory / "bin" / "python"
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        self._paths_file = directory / "lib" / version / "site-packages" / "tidemark.pth"

    def run_from(self, tree: Path) -> None:
        """Let processes that start from now on run the code in `tree`."""
        folders = [str(tree / folder) for folder in PACKAGE_FOLDERS if (tree / folder).is_dir()]
        written = self._paths_file.with_suffix(".new")
        # Lines of a .pth file are not searched for .pth files: this checkout's own is left out.
        written.write_text("\n".join([*folders, sysconfig.get_path("purelib")]) + "\n")
        written.replace(self._paths_file)

    def location_of(self, package: str) -> Path:
        """Return the file from which a process that starts now imports `package`."""
        found = subprocess.run(
            [str(self.path), "-c", f"import {package}; print({package}.__file__)"],
            capture_output=True,
            check=True,
            text=True,
            timeout=60,
        )
        return Path(found.stdout.strip())
