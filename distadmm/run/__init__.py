"""One run, from flags to its directory: configuration, set-up, loop, observation, checkpoints."""
