"""What training frameworks need beyond the loader: one module for each, imported only when it is used."""
