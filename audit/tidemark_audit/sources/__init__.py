"""Where samples come from. Each source cuts itself into slices that any process can read."""
