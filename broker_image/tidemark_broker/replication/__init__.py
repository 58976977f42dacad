"""Replicas: owns logs, purgatories and fetchers and performs the effects that `core` decides."""
