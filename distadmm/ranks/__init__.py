"""Message passing: worlds of ranks, how they wait, the graph's network and the star; the only importer of mpi4py."""
