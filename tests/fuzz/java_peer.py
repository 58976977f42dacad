"""Apache Kafka's own message classes, in a Java process that is asked by lines (WirePeer.java)."""

import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

ROOT = Path(__file__).parents[2]
PEER = Path(__file__).with_name("WirePeer.java")


class JavaPeer:
    """A context. Messages are bodies: neither length nor header."""

    def __init__(self) -> None:
        done = subprocess.run(
            [str(ROOT / "hack" / "kafka" / "jars")], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        jars = done.stdout.strip()
        quick = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m"]
        self._process = subprocess.Popen(
            ["java", *quick, "-cp", f"{jars}/*", str(PEER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> "JavaPeer":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(10)

    def generate(self, seed: int, api_key: int, version: int, side: str, count: int) -> list[bytes]:
        """Random messages as Kafka writes them; the same for the same seed."""
        lines = self._ask(f"generate {seed} {api_key} {version} {side} {count}", count)
        return [bytes.fromhex(line) for line in lines]

    def reread(self, api_key: int, version: int, side: str, body: bytes) -> bytes | str:
        """As Kafka writes what it read in these bytes, or why it reads nothing in them."""
        (line,) = self._ask(f"echo {api_key} {version} {side} {body.hex()}", 1)
        return line if line.startswith("refused") else bytes.fromhex(line)

    def _ask(self, question: str, count: int) -> Sequence[str]:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(question + "\n")
        self._process.stdin.flush()
        responses = [self._process.stdout.readline() for _ in range(count)]
        assert all(response.endswith("\n") for response in responses), "the Java peer ended"
        return [response.rstrip("\n") for response in responses]
