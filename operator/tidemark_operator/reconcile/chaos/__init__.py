"""Reconcile ChaosExperiments: their Jobs, the healing after them, and their conditions."""
