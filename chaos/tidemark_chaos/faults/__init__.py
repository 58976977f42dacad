"""What an experiment does to brokers."""
