"""Decide who clients and peers are and what clients may do; hold the broker's key and trust."""
