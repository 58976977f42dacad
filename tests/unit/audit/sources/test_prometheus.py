"""A Prometheus that is busy, refuses, stalls, dies or speaks an older form: never half an audit."""

import socket
import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest
from tidemark_audit.audit import audit
from tidemark_audit.engines.local import LocalEngine
from tidemark_audit.engines.planning import aggregation_settings
from tidemark_audit.results import Verdict
from tidemark_audit.sources.http_server import RetryPolicy, TooLarge
from tidemark_audit.sources.prometheus import Prometheus, PrometheusSlice, SampleFormat
from tidemark_audit.sources.remote_read_samples import batch_of
from tidemark_audit.sources.source import Slice, SourceError, Window
from tidemark_broker.http.problems import HttpProblem
from tidemark_protocol.error_codes import ErrorCode

from tests.support.audit_exports import Export, brokers, partition
from tests.unit.audit.small_prometheus import (
    SAMPLES,
    STREAMED,
    Reply,
    Requested,
    SmallPrometheus,
    serving,
)

BASE_MS = 1_700_000_000_000
LENGTH_MS = 240_000
WINDOW = Window(BASE_MS, BASE_MS + LENGTH_MS)
QUICK = RetryPolicy(silence_seconds=20.0, response_seconds=30.0, pauses_seconds=(0.01,) * 4)
# A test that waits for one of these pauses does not end.
NO_SECOND_TIME = RetryPolicy(pauses_seconds=(3600.0,))
Samples = list[tuple[object, int, float]]


@pytest.fixture(scope="module")
def export() -> Export:
    export = Export(length_ms=LENGTH_MS, step_ms=2000)
    partition(export)
    brokers(export)
    return export


@pytest.fixture
def prometheus(export: Export) -> SmallPrometheus:
    return SmallPrometheus(export, base_ms=BASE_MS)


@pytest.fixture
def url(prometheus: SmallPrometheus) -> Iterator[str]:
    with serving(prometheus) as address:
        yield address


def samples(parts: list[Slice]) -> Samples:
    return sorted(
        (batch.series[series], at_ms, value)
        for part in parts
        for batch in part.read()
        for series, at_ms, value in zip(
            batch.series_of.tolist(), batch.at_ms.tolist(), batch.values.tolist(), strict=True
        )
    )


def slices(url: str, patience: RetryPolicy = QUICK) -> list[Slice]:
    return list(Prometheus(url, patience=patience).slices(WINDOW))


def everything(prometheus: SmallPrometheus) -> int:
    return sum(len(found) for found in prometheus.series.values())


FORMS = {
    SampleFormat.STREAMED: (STREAMED, SAMPLES),
    SampleFormat.SAMPLES: (SAMPLES,),
    SampleFormat.API: (),
}


def test_a_server_is_read_by_the_best_form_that_it_knows_and_gives_the_same(
    prometheus: SmallPrometheus, url: str
) -> None:
    found = {}
    for form, known in FORMS.items():
        prometheus.forms = known
        (part,) = slices(url)
        assert isinstance(part, PrometheusSlice)
        assert part.form is form
        found[form] = samples([part])
    assert len(found[SampleFormat.STREAMED]) == everything(prometheus)
    assert found[SampleFormat.SAMPLES] == found[SampleFormat.API] == found[SampleFormat.STREAMED]


def test_samples_are_read_whatever_the_length_of_their_messages() -> None:
    export = Export(length_ms=5000)
    export.add("partition_replicas", lambda t: [0.0, -1.5, float("nan"), 2.0, 3.0][t // 1000],
               topic="a", partition="0")  # fmt: skip
    for base_ms in (0, BASE_MS, 1 << 50):
        small = SmallPrometheus(export, base_ms=base_ms)
        reply = small.honest(Requested("/api/v1/read", "", base_ms, base_ms + 5000, (SAMPLES,)))
        batch = batch_of(reply.body)
        assert batch.at_ms.tolist() == [base_ms + at for at in range(0, 5000, 1000)]
        assert repr(batch.values.tolist()) == "[0.0, -1.5, nan, 2.0, 3.0]"


def test_an_answer_that_would_fill_the_memory_is_too_large_before_it_is_unpacked() -> None:
    with pytest.raises(TooLarge):
        batch_of(b"\xff\xff\xff\xff\x0f" + b"\x00" * 20)


def test_chunks_of_an_unknown_encoding_are_asked_for_as_samples(
    prometheus: SmallPrometheus, url: str
) -> None:
    parts = slices(url)
    expected = samples(parts)
    prometheus.encoding = 7
    assert samples(parts) == expected


@pytest.mark.parametrize("form", list(SampleFormat))
def test_a_window_that_is_too_large_is_asked_for_in_halves(
    prometheus: SmallPrometheus, url: str, form: SampleFormat
) -> None:
    prometheus.forms = FORMS[form]
    parts = slices(url)
    expected = samples(parts)
    prometheus.requested.clear()
    prometheus.instead = lambda requested: (
        Reply(b"query processing would load too many samples", 422)
        if requested.length_ms > 61_000
        else None
    )
    assert samples(parts) == expected
    # The whole, two halves, four quarters; none of them twice.
    assert sorted(round(requested.length_ms, -3) // 1000 for requested in prometheus.requested) == [
        60, 60, 60, 60, 120, 120, 240
    ]  # fmt: skip


@pytest.mark.parametrize(
    "reply",
    [
        Reply(b"", 413),
        Reply(b"exceeded sample limit (5)", 400),
        Reply(b'{"status":"error","errorType":"timeout","error":"query timed out"}', 503),
    ],
)
def test_every_way_to_say_too_large_ends_in_an_error_with_the_window(
    prometheus: SmallPrometheus, url: str, reply: Reply
) -> None:
    parts = slices(url)
    prometheus.instead = lambda requested: reply
    with pytest.raises(SourceError, match="max-samples") as failed:
        samples(parts)
    # Down to the shortest window that is asked for.
    assert failed.value.place == f"{url} from {BASE_MS} to {BASE_MS + 60_000} ms"


class First:
    """The given reply for the first requests for samples, then honest ones."""

    def __init__(self, reply: Reply, times: int = 1 << 30) -> None:
        self.reply = reply
        self.left = times

    def __call__(self, requested: Requested) -> Reply | None:
        self.left -= 1
        return self.reply if self.left >= 0 else None


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_a_busy_server_is_asked_again_and_nothing_is_doubled(
    prometheus: SmallPrometheus, url: str, status: int
) -> None:
    parts = slices(url)
    expected = samples(parts)
    prometheus.requested.clear()
    prometheus.instead = First(Reply(b"busy", status, {"Retry-After": "0"}), times=3)
    assert samples(parts) == expected
    assert len(prometheus.requested) == 4


def test_a_server_that_stays_busy_is_an_error_after_five_times(
    prometheus: SmallPrometheus, url: str
) -> None:
    parts = slices(url)
    prometheus.requested.clear()
    prometheus.instead = First(Reply(b"try later", 503))
    with pytest.raises(SourceError, match=r"503.*try later"):
        samples(parts)
    assert len(prometheus.requested) == 5


@pytest.mark.parametrize(
    ("status", "to_do"),
    [(400, "path"), (401, "--token-file"), (403, "--token-file"), (404, "path")],
)
def test_a_refusal_is_an_error_at_once_and_says_what_to_do(
    prometheus: SmallPrometheus, url: str, status: int, to_do: str
) -> None:
    parts = slices(url, NO_SECOND_TIME)
    prometheus.instead = First(Reply(b"no", status))
    with pytest.raises(SourceError, match=f"{status}.*{to_do}"):
        samples(parts)


def test_the_address_of_a_broker_is_told_to_be_one(prometheus: SmallPrometheus, url: str) -> None:
    """Of whatever path that it does not have; a broker knows no token."""
    problem = HttpProblem(ErrorCode.INVALID_REQUEST, "not found", status=404)
    body = problem.answer("/api/v1/read", is_produce=False).body
    prometheus.instead = lambda requested: Reply(body, 404)
    with pytest.raises(SourceError, match="a Tidemark broker: use the Prometheus"):
        slices(url, NO_SECOND_TIME)


def test_a_token_that_is_refused_is_told_before_anything_is_read(
    prometheus: SmallPrometheus, url: str
) -> None:
    prometheus.instead = First(Reply(b"who are you?", 401))
    with pytest.raises(SourceError, match=r"401.*who are you"):
        slices(url, NO_SECOND_TIME)
    assert len(prometheus.requested) == 1


def test_a_server_that_stalls_is_asked_twice_and_then_an_error(
    prometheus: SmallPrometheus, url: str
) -> None:
    parts = slices(url, replace(QUICK, silence_seconds=0.2))
    prometheus.requested.clear()
    prometheus.instead = First(
        Reply(b"", headers={"Content-Type": "application/x-protobuf"}, stalls=True, chunked=True,
              breaks_after=0)
    )  # fmt: skip
    with pytest.raises(SourceError, match="in time"):
        samples(parts)
    assert len(prometheus.requested) == 2


def test_a_server_that_trickles_for_ever_is_an_error(prometheus: SmallPrometheus, url: str) -> None:
    prometheus.forms = ()
    parts = slices(url, replace(QUICK, response_seconds=0.3))
    prometheus.instead = First(Reply(b"{", says_its_length=False, trickles=True))
    with pytest.raises(SourceError, match="in time"):
        samples(parts)


@pytest.mark.parametrize("form", list(SampleFormat))
def test_an_answer_that_breaks_off_is_asked_again_and_never_taken_for_a_short_one(
    prometheus: SmallPrometheus, url: str, form: SampleFormat
) -> None:
    prometheus.forms = FORMS[form]
    parts = slices(url)
    expected = samples(parts)
    honest = prometheus.honest
    for share in (0.0, 0.3, 0.99):
        prometheus.requested.clear()
        left = [2]

        def broken(
            requested: Requested, share: float = share, left: list[int] = left
        ) -> Reply | None:
            left[0] -= 1
            reply = honest(requested)
            if left[0] < 0:
                return None
            return replace(reply, breaks_after=int(share * len(reply.body)))

        prometheus.instead = broken
        assert samples(parts) == expected
        assert len(prometheus.requested) == 3
    prometheus.instead = lambda requested: replace(honest(requested), breaks_after=100)
    with pytest.raises(SourceError, match="truncated"):
        samples(parts)


def test_frames_whose_end_nobody_can_know_are_refused(
    prometheus: SmallPrometheus, url: str
) -> None:
    parts = slices(url)
    prometheus.instead = lambda requested: replace(
        prometheus.honest(requested), chunked=False, says_its_length=False
    )
    with pytest.raises(SourceError, match="the end is unknown"):
        samples(parts)


def test_frames_and_blocks_that_were_damaged_are_refused(
    prometheus: SmallPrometheus, url: str
) -> None:
    for form in (SampleFormat.STREAMED, SampleFormat.SAMPLES):
        prometheus.instead = lambda requested: None
        prometheus.forms = FORMS[form]
        parts = slices(url)

        def corrupt(requested: Requested) -> Reply:
            reply = prometheus.honest(requested)
            body = bytearray(reply.body)
            for place in range(100, len(body), 997):
                body[place] ^= 0x55
            return replace(reply, body=bytes(body))

        prometheus.instead = corrupt
        with pytest.raises(SourceError, match="complete"):
            samples(parts)


@pytest.mark.parametrize(
    "body",
    [
        b"<html>please log in</html>",
        b'{"status":"success","data":{"resultType":"matrix","result":[{"metric":{"__na',
        b'{"status":"success","warnings":["store 3 did not answer"],"data":{"resultType":'
        b'"matrix","result":[]}}',
        b'{"status":"error","error":"no"}',
    ],
)
def test_half_a_document_is_an_error(prometheus: SmallPrometheus, url: str, body: bytes) -> None:
    prometheus.forms = ()
    parts = slices(url)
    prometheus.instead = lambda requested: Reply(body)
    with pytest.raises(SourceError):
        samples(parts)
    with pytest.raises(SourceError):
        slices(url)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@pytest.mark.parametrize(
    "address",
    [
        "http://127.0.0.1:{}",
        "http://no-such-host.invalid:{}",
        "http://127.0.0.1:port",
        "http://",
        "http://a..b",
    ],
)
def test_an_address_where_nobody_ever_answered_is_an_error_at_once(address: str) -> None:
    with pytest.raises(SourceError, match="check the address"):
        slices(address.format(free_port()), NO_SECOND_TIME)


def test_what_speaks_no_http_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def greet() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1 << 16)
                connection.sendall(b"220 mail.example ESMTP\r\n")

        thread = threading.Thread(target=greet)
        thread.start()
        with pytest.raises(SourceError, match="BadStatusLine"):
            slices(f"http://127.0.0.1:{server.getsockname()[1]}", NO_SECOND_TIME)
        thread.join()


def test_a_server_that_restarts_between_two_slices_is_waited_for(export: Export) -> None:
    with serving(SmallPrometheus(export, base_ms=BASE_MS)) as address:
        parts = slices(address, replace(QUICK, pauses_seconds=(0.05, 0.1, 0.2, 0.4, 0.8, 1.6)))
        expected = samples(parts)
    again = threading.Event()

    def restart() -> None:
        port = int(address.rsplit(":", 1)[1])
        with serving(SmallPrometheus(export, base_ms=BASE_MS), port=port):
            again.wait(30)

    thread = threading.Thread(target=restart)
    thread.start()
    try:
        assert samples(parts) == expected
    finally:
        again.set()
        thread.join()


def test_the_interval_is_that_of_the_window_and_not_of_today(
    prometheus: SmallPrometheus, url: str
) -> None:
    # Nothing was scraped in the last ten minutes of our clock: this window is of 2023.
    settings = aggregation_settings([Prometheus(url, patience=QUICK)], WINDOW, None)
    assert settings.break_gap_ms == 3000


def test_an_audit_over_a_troubled_server_is_the_same_audit(
    prometheus: SmallPrometheus, url: str
) -> None:
    source = Prometheus(url, patience=QUICK)
    first = audit(LocalEngine(), [source], window=WINDOW)
    assert first.verdict is Verdict.PASS
    requests = iter(range(1 << 30))

    def trouble(requested: Requested) -> Reply | None:
        number = next(requests)
        if requested.length_ms > 121_000:
            return Reply(b"too many samples", 422)
        return Reply(b"busy", 503) if number % 2 else None

    prometheus.instead = trouble
    second = audit(LocalEngine(), [source], window=WINDOW)
    assert replace(second, wall_seconds=0.0) == replace(first, wall_seconds=0.0)
