"""Local mode: the same controller and brokers as processes of one machine, without Kubernetes."""
