"""Where brokers run: pods of Kubernetes or processes of this machine."""
