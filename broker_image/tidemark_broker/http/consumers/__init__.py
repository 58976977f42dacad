"""Consumer groups over HTTP: the paths of the REST Proxy v2 and the Strimzi bridge."""
