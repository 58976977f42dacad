"""Render a report as one HTML page that fetches nothing. Pure."""

from html import escape

from tidemark_chaos.report.results import ChaosReport


def html_page(report: ChaosReport) -> str:
    return f"<!doctype html><title>{escape(report.name)}</title>{escape(report.sentence)}"
