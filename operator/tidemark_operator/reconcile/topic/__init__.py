"""Reconcile a Topic."""
