"""Reconciles a Topic."""
