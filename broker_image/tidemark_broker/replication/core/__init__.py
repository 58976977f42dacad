"""Decide about replicas: leader, follower, assignment, idempotence, corruption."""
