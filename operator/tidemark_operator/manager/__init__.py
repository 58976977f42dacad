"""Run the process: kopf watches, leader election, health and logging."""
