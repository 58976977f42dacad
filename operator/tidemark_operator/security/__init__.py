"""Identify who sends a request, review what they may do, and issue certificates (0170)."""
