"""Points in time on the command line."""

import pytest
from tidemark_cli.moments import is_relative, moment_ms

NOW_MS = 1_700_000_000_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2023-11-14T22:13:20Z", NOW_MS),
        ("2023-11-15T00:13:20+02:00", NOW_MS),
        ("2023-11-14T22:13:20", NOW_MS),
        ("2023-11-14T22:13:20.500Z", NOW_MS + 500),
        ("@1700000000000", NOW_MS),
        ("s@1700000000000", NOW_MS),
        ("@-1h", NOW_MS - 3_600_000),
        ("-1h", NOW_MS - 3_600_000),
        ("-90s", NOW_MS - 90_000),
        ("-2d", NOW_MS - 2 * 86_400_000),
        ("-5m", NOW_MS - 300_000),
        ("-250ms", NOW_MS - 250),
        ("-99999999999d", 0),
        ("1700000000000", None),
        ("@99999999999999999999", None),
        ("1h", None),
        ("-1w", None),
        ("-\u0663h", None),
        ("soon", None),
        ("@", None),
        ("", None),
    ],
)
def test_each_way_to_say_a_time(text: str, expected: int | None) -> None:
    assert moment_ms(text, NOW_MS) == expected


def test_relative_times_begin_with_a_dash() -> None:
    assert [is_relative(text) for text in ("-1h", "-p", "-1", "--from")] == [True] + [False] * 3
