"""Answer brokers' requests about their clients."""
