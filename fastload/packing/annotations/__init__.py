"""Sets of pictures with annotations beside them, in the formats that others write."""
