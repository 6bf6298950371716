"""Why a training loop waits: what was watched, what was tried, and the verdict in words."""
