"""Aggregates samples to mergeable summaries in numpy."""
