"""Render a report as JUnit XML: one test case for the run, each fault and each check. Pure."""

import re
from xml.etree import ElementTree

from tidemark_chaos.report.results import ChaosReport, Verdict

# What XML 1.0 cannot hold, even escaped.
NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit_xml(report: ChaosReport) -> str:
    suite = ElementTree.Element("testsuite", name=_plain(f"chaos {report.name}"))
    run = _case(suite, report, "verdict", report.seconds)
    if report.verdict is not Verdict.PASSED:
        _fail(run, report.sentence, "\n".join((*report.reasons, report.command)))
    for fault in report.faults:
        took = (fault.full_isr_ms or fault.healed_ms or 0.0) / 1000
        name = f"fault {fault.number}: {fault.kind} of {fault.role}"
        case = _case(suite, report, name, took)
        if fault.skipped:
            ElementTree.SubElement(case, "skipped", message=_plain(fault.skipped))
    for row in report.anomalies:
        case = _case(suite, report, f"check: {row.name}", 0.0)
        if row.count and row.breaks_guarantee:
            _fail(case, f"{row.count} found", "\n".join(row.samples))
    suite.set("tests", str(len(suite)))
    suite.set("failures", str(len(suite.findall("*/failure"))))
    suite.set("skipped", str(len(suite.findall("*/skipped"))))
    suite.set("time", f"{report.seconds:.3f}")
    ElementTree.indent(suite)
    text = ElementTree.tostring(suite, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'


def _case(
    suite: ElementTree.Element, report: ChaosReport, name: str, seconds: float
) -> ElementTree.Element:
    return ElementTree.SubElement(
        suite,
        "testcase",
        classname=_plain(f"chaos.{report.name}"),
        name=_plain(name),
        time=f"{seconds:.3f}",
    )


def _fail(case: ElementTree.Element, message: str, text: str) -> None:
    failure = ElementTree.SubElement(case, "failure", message=_plain(message))
    failure.text = _plain(text)


def _plain(text: str) -> str:
    return NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text)
