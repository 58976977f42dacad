"""The clusters that an experiment runs on: processes of this machine, or Kubernetes."""
