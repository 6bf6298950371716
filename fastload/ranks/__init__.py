"""Several processes: who is who, whether they agree, and how they end."""
