"""The families of docs/operations/metrics.md as values: what tests hold the code against."""

import re
from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "operations" / "metrics.md"
PROFILES = {"m": "minimal", "a": "audit", "f": "full"}

_NAME = re.compile(r"`((?:tidemark|process)_[a-z_]+)`")


@dataclass(frozen=True, slots=True)
class DocumentedFamily:
    name: str
    kinds: frozenset[str]  # gauge, counter, histogram: of the row
    section: str  # the heading above its table
    profile: str  # "" where the table has no such column


def documented_families() -> tuple[DocumentedFamily, ...]:
    found, section, columns = [], "", []
    for line in PAGE.read_text().splitlines():
        if line.startswith("#"):
            section, columns = line.lstrip("# "), []
        elif line.startswith("|"):
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            if not columns:
                columns = cells
            elif columns[0] == "family" and "type" in columns:
                row = dict(zip(columns, cells, strict=True))
                kinds = frozenset(row["type"].split(", ")) - {""}
                profile = PROFILES.get(row.get("profile", ""), "")
                found += [
                    DocumentedFamily(name, kinds, section, profile)
                    for name in _NAME.findall(row["family"])
                ]
        else:
            columns = []
    return tuple(found)
