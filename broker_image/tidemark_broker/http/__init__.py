"""The broker's HTTP face: routes, bodies, problems. It adapts `runtime.partitions`."""
