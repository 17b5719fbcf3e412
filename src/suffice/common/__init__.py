"""Small things that every room may use: files, processes, tables, texts and what users register by name."""
