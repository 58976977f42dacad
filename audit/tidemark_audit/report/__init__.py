"""Render an audit's result for people and machines: one HTML page, Markdown, JUnit XML."""
