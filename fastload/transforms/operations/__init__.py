"""Operations of the core, a file for each kind; :mod:`~fastload.transforms.operations.registry` lists all."""
