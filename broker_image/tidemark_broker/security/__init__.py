"""Authenticate clients: the mechanisms of SASL, and the cache of what the controller reviewed."""
