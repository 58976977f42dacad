"""Reconcile a BrokerPool."""
