"""Accepts connections and bounds memory."""
