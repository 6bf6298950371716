"""The tables of bench_articles.py, one a file."""
