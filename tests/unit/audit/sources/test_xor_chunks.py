"""The lock-step decoder against a plain encoder written from Prometheus's description."""

import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tidemark_audit.aggregation.samples import STALE
from tidemark_audit.sources.xor_chunks import BadChunk, decode


class Bits:
    def __init__(self) -> None:
        self.text = ""

    def put(self, value: int, size: int) -> None:
        self.text += format(value & ((1 << size) - 1), f"0{size}b") if size else ""

    def varint(self, value: int) -> None:
        while value >= 0x80:
            self.put(value & 0x7F | 0x80, 8)
            value >>= 7
        self.put(value, 8)

    def done(self) -> bytes:
        padded = self.text + "0" * (-len(self.text) % 8)
        return bytes(int(padded[at : at + 8], 2) for at in range(0, len(padded), 8))


def bits_of(value: float) -> int:
    return int(struct.unpack(">Q", struct.pack(">d", value))[0])


def encode(times: list[int], values: list[float]) -> bytes:
    out = Bits()
    delta, leading, trailing = 0, -1, 0
    for number, (at_ms, value) in enumerate(zip(times, values, strict=True)):
        if number == 0:
            out.varint((at_ms << 1) ^ (at_ms >> 63) if at_ms < 0 else at_ms << 1)
            out.put(bits_of(value), 64)
            continue
        new_delta = at_ms - times[number - 1]
        if number == 1:
            out.varint(new_delta)
        else:
            step = new_delta - delta
            for size, prefix in ((0, "0"), (14, "10"), (17, "110"), (20, "1110"), (64, "1111")):
                half = 1 << (size - 1) if size else 0
                if (size == 0 and step == 0) or size == 64 or (size and -half < step <= half):
                    out.text += prefix
                    out.put(step, size)
                    break
        delta = new_delta
        xor = bits_of(value) ^ bits_of(values[number - 1])
        if xor == 0:
            out.put(0, 1)
            continue
        lead = min(64 - xor.bit_length(), 31)
        trail = (xor & -xor).bit_length() - 1
        if leading >= 0 and lead >= leading and trail >= trailing:
            out.put(0b10, 2)
        else:
            leading, trailing = lead, trail
            out.put(0b11, 2)
            out.put(lead, 5)
            out.put(64 - lead - trail, 6)
        out.put(xor >> trailing, 64 - leading - trailing)
    return len(times).to_bytes(2, "big") + out.done()


SAMPLES = st.lists(
    st.tuples(
        st.one_of(st.integers(1, 40_000), st.integers(1, 1 << 40)),
        st.one_of(st.floats(allow_nan=False), st.integers(-5, 5).map(float), st.just(float(STALE))),
    ),
    min_size=1,
    max_size=40,
)


@given(st.lists(SAMPLES, min_size=1, max_size=8), st.integers(-(1 << 40), 1 << 40))
@settings(max_examples=60)
def test_chunks_of_any_shape_are_decoded_bit_by_bit(
    many: list[list[tuple[int, float]]], base: int
) -> None:
    series = []
    for samples in many:
        times = [base + int(at) for at in np.cumsum([gap for gap, _ in samples])]
        series.append((times, [value for _, value in samples]))
    counts, times_found, values_found = decode([encode(*one) for one in series])
    assert counts.tolist() == [len(times) for times, _ in series]
    assert times_found.tolist() == [at for times, _ in series for at in times]
    expected = np.array([value for _, values in series for value in values])
    assert values_found.view(np.uint64).tolist() == expected.view(np.uint64).tolist()


@given(st.lists(st.binary(max_size=60), min_size=1, max_size=5))
@settings(max_examples=300)
def test_foreign_bytes_are_refused_or_decoded_and_never_read_out_of_bounds(
    chunks: list[bytes],
) -> None:
    bounded = [
        bytes((0, chunk[1] % 64)) + chunk[2:] if len(chunk) > 1 else chunk for chunk in chunks
    ]
    try:
        counts, times, values = decode(bounded)
    except BadChunk:
        return
    assert int(counts.sum()) == len(times) == len(values)


def test_a_chunk_that_is_cut_short_is_refused() -> None:
    whole = encode([1000 * number for number in range(20)], [float(n) for n in range(20)])
    for length in range(len(whole)):
        with pytest.raises(BadChunk):
            decode([whole, whole[:length]])
