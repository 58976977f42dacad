"""Measure what happened in an experiment, and write it as HTML, JSON and JUnit."""
