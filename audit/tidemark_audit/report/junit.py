"""Render the result as JUnit XML: a test case for each rule, for pipelines.

The format is what Jenkins, GitLab and GitHub actions read (Apache Ant's junit task).
"""

from xml.etree.ElementTree import Element, SubElement, indent, tostring

from tidemark_audit.report.formatting import span
from tidemark_audit.results import AuditResult, Outcome, RuleResult, Verdict

SUITE = "tidemark audit"


def render_junit(result: AuditResult) -> bytes:
    """Return the document: a violated rule is a failure, one without its inputs is skipped.

    The verdict is a case of its own: INCONCLUSIVE is an error, as the audit could not judge.
    """
    suites = Element("testsuites", name=SUITE)
    suite = SubElement(suites, "testsuite", name=SUITE, time=f"{result.wall_seconds:.3f}")
    for rule in result.rules:
        _case(suite, rule, result)
    verdict = SubElement(suite, "testcase", classname="tidemark.audit", name="verdict", time="0")
    if result.verdict in (Verdict.INCONCLUSIVE, Verdict.NO_SOURCE):
        _reported(verdict, "error", result.verdict.value, result.sentence, "")
    elif result.verdict is not Verdict.PASS:
        _reported(verdict, "failure", result.verdict.value, result.sentence, "")
    counted = {"tests": "testcase", "failures": "failure", "errors": "error", "skipped": "skipped"}
    for name, tag in counted.items():
        number = str(sum(1 for _ in suite.iter(tag)))
        suite.set(name, number)
        suites.set(name, number)
    indent(suites)
    return b'<?xml version="1.0" encoding="UTF-8"?>\n' + tostring(suites) + b"\n"


def _case(suite: Element, rule: RuleResult, result: AuditResult) -> None:
    name = f"{rule.rule} {rule.title}"
    case = SubElement(suite, "testcase", classname="tidemark.audit", name=_clean(name), time="0")
    if rule.outcome is Outcome.NOT_EVALUATED:
        missing = ", ".join(rule.missing_families)
        SubElement(case, "skipped", message=_clean(f"not evaluated, missing: {missing}"))
    elif rule.outcome is Outcome.VIOLATED:
        reported = "\n".join(
            f"{finding.severity.value}: {finding.subject}: {finding.sentence}"
            f" ({span(finding.start_ms, finding.end_ms)}); {finding.remedy}"
            for finding in result.findings
            if finding.rule == rule.rule and not finding.planned
        )
        _reported(
            case, "failure", rule.rule, f"{rule.measured}; objective: {rule.objective}", reported
        )


def _reported(case: Element, tag: str, kind: str, message: str, text: str) -> None:
    SubElement(case, tag, type=kind, message=_clean(message)).text = _clean(text)


def _clean(text: str) -> str:
    """Without what XML 1.0 cannot hold at all."""
    return "".join(
        sign for sign in text if sign in "\t\n" or (sign >= " " and sign not in "\ufffe\uffff")
    )
