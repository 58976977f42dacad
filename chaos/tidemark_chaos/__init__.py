"""Breaks a cluster under load: experiments, faults, workload, verification."""
