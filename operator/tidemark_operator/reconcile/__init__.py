"""Reconcilers: observe (I/O), plan (pure), apply (I/O), driven by keys in one work queue."""
