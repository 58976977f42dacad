"""The state machine of one `__consumer_offsets` partition."""
