"""Privacy mappings for inference as a service: the mathematics, one method a file."""
