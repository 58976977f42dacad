"""Reconcile objects: read, plan and write, dispatched by kind."""
