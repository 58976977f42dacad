"""Accept connections and bound the memory that they use."""
