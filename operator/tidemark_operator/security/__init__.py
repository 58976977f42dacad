"""Find out who sends a request, and reject what its sender may not do."""
