"""Private iterative thresholding with concave penalties."""
