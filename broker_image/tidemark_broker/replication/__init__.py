"""Own replicas, purgatories and fetchers, and perform the effects that `core` decides."""
