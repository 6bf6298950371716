"""Operations of the core, a file each; :mod:`fastload.transforms.operations.registry` has the list."""
