"""Read samples; each source divides itself into slices that any process can read."""
