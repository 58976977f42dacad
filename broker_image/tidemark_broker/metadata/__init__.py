"""Keep what the broker knows of its pool, and call the controller."""
