"""Authenticate clients and peers, and hold the broker's key, certificate and trust."""
