"""Aggregate samples to mergeable summaries in numpy."""
