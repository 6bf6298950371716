"""Several processes: their ranks, whether their loaders agree, and how they end."""
