"""Breast cancer, the small bundled table."""
