"""The controller: sessions, elections, in-sync replicas, placement, the metadata image.

Pure decisions live beside each other here; service.py, slice_store.py and api.py are the shell."""
