"""The ratios as a picture: how many times better than Kafka each row is, on a logarithmic axis.

A bar to the right of 1 is better, to the left worse; a line from the worst to the best round; a
tick where the target lies.
"""

from html import escape
from math import log2
from statistics import median

from bench.rows import Compared

_ROW_HEIGHT = 26
_LABEL_WIDTH = 350
_PLOT_WIDTH = 460
_VALUE_WIDTH = 110
_TOP = 54
_MIN_FACTOR, _MAX_FACTOR = 0.25, 64.0
_MARKS = (0.25, 0.5, 1, 2, 4, 8, 16, 32, 64)


def chart(compared: list[Compared]) -> str:
    """An SVG document."""
    shown = [entry for entry in compared if entry.ratios]
    height = _TOP + _ROW_HEIGHT * len(shown) + 30
    width = _LABEL_WIDTH + _PLOT_WIDTH + _VALUE_WIDTH
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}"'
        f' viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="13">',
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
        '<text x="12" y="22" font-size="16" font-weight="bold">Tidemark beside Kafka 4.4,'
        " one machine: times better</text>",
        *_axis(height),
        *(part for index, entry in enumerate(shown) for part in _bar(index, entry)),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _x(factor: float) -> float:
    bounded = min(max(factor, _MIN_FACTOR), _MAX_FACTOR)
    share = (log2(bounded) - log2(_MIN_FACTOR)) / (log2(_MAX_FACTOR) - log2(_MIN_FACTOR))
    return _LABEL_WIDTH + share * _PLOT_WIDTH


def _axis(height: int) -> list[str]:
    parts = []
    for mark in _MARKS:
        x = _x(mark)
        colour = "#555" if mark == 1 else "#ddd"
        parts.append(
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP - 6}" y2="{height - 22}"'
            f' stroke="{colour}"/>'
        )
        parts.append(
            f'<text x="{x:.1f}" y="{_TOP - 12}" fill="#555" text-anchor="middle"'
            f' font-size="11">{mark:g}x</text>'
        )
    return parts


def _bar(index: int, entry: Compared) -> list[str]:
    row = entry.row
    factors = [ratio if row.is_more_better else 1 / max(ratio, 1e-9) for ratio in entry.ratios]
    middle = median(factors)
    y = _TOP + index * _ROW_HEIGHT
    left, right = sorted((_x(1), _x(middle)))
    colour = {None: "#8aa6bf", True: "#2f8f5b", False: "#c4622d"}[entry.is_met]
    parts = [
        f'<text x="{_LABEL_WIDTH - 12}" y="{y + 15}" text-anchor="end">'
        f"{escape(entry.title)}</text>",
        f'<rect x="{left:.1f}" y="{y + 4}" width="{max(1.0, right - left):.1f}" height="14"'
        f' fill="{colour}"/>',
        f'<line x1="{_x(min(factors)):.1f}" x2="{_x(max(factors)):.1f}" y1="{y + 11}"'
        f' y2="{y + 11}" stroke="#222" stroke-width="2"/>',
        f'<text x="{_LABEL_WIDTH + _PLOT_WIDTH + 12}" y="{y + 15}">{middle:.2g}x</text>',
    ]
    if row.target:
        x = _x(row.target if row.is_more_better else 1 / row.target)
        parts.append(
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{y}" y2="{y + 22}" stroke="#222"'
            ' stroke-dasharray="3 2"/>'
        )
    return parts
