"""Define the typed API objects, their kinds and validation rules."""
