"""What a loader reads: packed datasets, mixtures and selections of them, as torch Datasets, too."""
