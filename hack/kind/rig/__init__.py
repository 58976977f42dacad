"""What `hack/kind/cluster` and `hack/images/build` are made of."""
