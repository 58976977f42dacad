"""Samples to summaries in numpy, and summaries to summaries: a monoid, so any cut is as good."""
