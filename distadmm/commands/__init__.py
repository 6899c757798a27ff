"""The verbs of `python -m distadmm`."""
