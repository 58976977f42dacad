"""The broker's key, certificate and trust."""
