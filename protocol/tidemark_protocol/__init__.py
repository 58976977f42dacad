"""Define what operator and brokers share: ids, epochs, error codes, states, messages."""
