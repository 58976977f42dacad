"""Coordinate consumer groups: load `__consumer_offsets`, append to it, run timers."""
