"""An audit's result for people and for machines: one HTML page, Markdown, JUnit XML."""
