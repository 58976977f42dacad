"""What the broker knows of its pool, and its calls to the controller."""
