"""Reconciles a ReplicationAudit."""
