"""The mathematics of the five papers; nothing here writes files, parses flags or draws."""
