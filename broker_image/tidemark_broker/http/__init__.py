"""The REST API: one route table that is both what runs and what OpenAPI shows."""
