"""Reports: files, tables and documents made from results; nothing here changes a verdict."""
