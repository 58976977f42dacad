"""Write the reports of an experiment: report.json, report.html and junit.xml."""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from tidemark_chaos.report.html import html_page
from tidemark_chaos.report.junit import junit_xml
from tidemark_chaos.report.results import ChaosReport


def write_reports(out: Path, report: ChaosReport, others: Sequence[ChaosReport] = ()) -> None:
    """Write the reports; `others` are of other systems, for a comparison on the page."""
    encoded = msgspec.json.format(msgspec.json.encode(report), indent=1)
    (out / "report.json").write_bytes(encoded + b"\n")
    (out / "report.html").write_text(html_page(report, others), encoding="utf-8")
    (out / "junit.xml").write_text(junit_xml(report), encoding="utf-8")
