"""Records cut from a stream: every byte of a record is in one record, or in none."""

import asyncio
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tidemark_cli import record_input
from tidemark_cli.record_input import (
    RecordSplitter,
    TooLarge,
    chunks_of,
    record_of_file,
    records_of,
    whole_of,
)


def cut(
    data: bytes, *, delimiter: bytes = b"\n", most_bytes: int = 10, chunk: int = 3
) -> list[bytes | TooLarge]:
    splitter = RecordSplitter(delimiter, most_bytes)
    found: list[bytes | TooLarge] = []
    for start in range(0, len(data), chunk):
        found += splitter.feed(data[start : start + chunk])
    return found + splitter.end()


@pytest.mark.parametrize("chunk", [1, 2, 3, 7, 1000])
@pytest.mark.parametrize(
    ("data", "records"),
    [
        (b"", []),
        (b"a\nb\n", [b"a", b"b"]),
        (b"a\nb", [b"a", b"b"]),
        (b"\n\n", [b"", b""]),
        (b"a\r\nb\rc\0d\n", [b"a\r", b"b\rc\0d"]),
        (b"\xff\xfe\n", [b"\xff\xfe"]),
        (b"x" * 10 + b"\n", [b"x" * 10]),
        (b"x" * 11 + b"\ny", [TooLarge(11), b"y"]),
        (b"y\n" + b"x" * 64, [b"y", TooLarge(64)]),
        (b"x" * 64 + b"\n\n" + b"x" * 65 + b"\nz\n", [TooLarge(64), b"", TooLarge(65), b"z"]),
    ],
)
def test_one_line_is_one_record_or_a_refusal(
    data: bytes, records: list[bytes | TooLarge], chunk: int
) -> None:
    assert cut(data, chunk=chunk) == records


@settings(max_examples=30)
@given(st.binary(max_size=60), st.sampled_from([b"\n", b"ab", b"aab"]), st.integers(1, 9))
def test_chunks_make_no_difference(data: bytes, delimiter: bytes, chunk: int) -> None:
    whole = data.split(delimiter)
    if whole[-1] == b"":
        del whole[-1]
    expected = [record if len(record) <= 4 else TooLarge(len(record)) for record in whole]
    text = data.replace(b"\x00", b"a").replace(b"\x01", b"b")
    assert cut(data, delimiter=delimiter, most_bytes=4, chunk=chunk) == expected
    assert cut(text, delimiter=delimiter, most_bytes=4, chunk=chunk) == cut(
        text, delimiter=delimiter, most_bytes=4, chunk=1
    )


def test_a_line_of_more_than_a_request_holds_keeps_no_memory() -> None:
    splitter = RecordSplitter(b"\n", 1000)
    for _ in range(100):
        assert splitter.feed(b"x" * 1000) == []
        assert len(splitter._rest) <= 1000
    assert splitter.feed(b"\nnext\n") == [TooLarge(100_000), b"next"]


def test_a_pipe_is_read_as_its_writer_writes() -> None:
    async def experiment() -> None:
        reading, writing = os.pipe()
        chunks = chunks_of(reading)
        os.write(writing, b"first")
        assert await anext(chunks) == b"first"
        os.write(writing, b"second")
        assert await anext(chunks) == b"second"
        os.close(writing)
        assert [chunk async for chunk in chunks] == []
        os.close(reading)

    asyncio.run(experiment())


def test_a_silent_pipe_can_be_left() -> None:
    async def experiment() -> None:
        reading, writing = os.pipe()
        waiting = asyncio.ensure_future(anext(chunks_of(reading)))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        os.close(reading)
        os.close(writing)

    asyncio.run(experiment())


def test_a_regular_file_is_read_too(tmp_path: Path) -> None:
    async def experiment() -> None:
        with (tmp_path / "lines").open("rb") as file:
            found = [
                record async for records in records_of(file.fileno(), b"\n") for record in records
            ]
        assert found == [b"one", b"two"]

    (tmp_path / "lines").write_bytes(b"one\ntwo")
    asyncio.run(experiment())


def test_a_file_is_one_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_input, "MOST_RECORD_BYTES", 8)
    path = tmp_path / "record"
    path.write_bytes(b"a\nb\0\xff\n")
    assert record_of_file(path) == b"a\nb\0\xff\n"
    path.write_bytes(b"x" * 9)
    assert record_of_file(path) == TooLarge(9)


def test_all_of_stdin_is_one_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def experiment(size: int) -> bytes | TooLarge:
        (tmp_path / "record").write_bytes(b"\n" * size)
        with (tmp_path / "record").open("rb") as file:
            return await whole_of(file.fileno())

    monkeypatch.setattr(record_input, "MOST_RECORD_BYTES", 8)
    assert asyncio.run(experiment(8)) == b"\n" * 8
    assert asyncio.run(experiment(9)) == TooLarge(9)
