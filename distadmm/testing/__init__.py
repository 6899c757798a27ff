"""What every algorithm has to keep, for authors of their own: `contracts`, and `python -m distadmm.testing FILE.py`."""
