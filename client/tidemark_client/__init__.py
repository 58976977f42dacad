"""Talk to brokers and operator: HTTP client library, cluster status, manifests."""
