"""Where brokers run: pods or local processes."""
