"""Decentralised consensus: minimise sum_i O_i(f) over a graph whose nodes talk to their neighbours only."""
