"""Analyses summaries of one partition: intervals, changes and loss evidence."""
