"""Files that spark-submit runs: alone in their directory, which Python puts before all packages."""
