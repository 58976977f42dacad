"""Handle Kafka's requests, one file for a family of APIs; the table is `handler_table.py`."""
