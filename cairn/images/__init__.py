"""Images read in place from folders and archives."""
