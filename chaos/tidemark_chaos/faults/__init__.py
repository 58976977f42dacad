"""Provide the faults that an experiment injects."""
