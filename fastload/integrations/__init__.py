"""What training frameworks need beyond the loader: a module for each, imported only when it is used."""
