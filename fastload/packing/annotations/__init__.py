"""Sets of pictures with annotations beside them, in the formats of other programs."""
