"""Reconciles a BrokerPool."""
