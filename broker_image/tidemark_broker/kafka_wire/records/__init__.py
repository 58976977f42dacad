"""Read and write Kafka's record batches, and compress them."""
