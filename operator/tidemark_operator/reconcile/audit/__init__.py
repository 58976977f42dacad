"""Reconcile a ReplicationAudit."""
