"""Run brokers, as pods or as local processes."""
