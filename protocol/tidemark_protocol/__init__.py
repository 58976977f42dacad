"""The words that operator, brokers and clients exchange: ids, epochs, errors, states, messages."""
