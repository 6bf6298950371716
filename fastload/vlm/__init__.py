"""Pictures for vision-language models: the rules of their image processors, and batches of what they make."""
