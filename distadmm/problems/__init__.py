"""What is minimised: losses, regularisers, proximal maps, and the solvers of one node's step."""
