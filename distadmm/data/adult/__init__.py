"""Adult: its rows, its encodings, where they come from."""
