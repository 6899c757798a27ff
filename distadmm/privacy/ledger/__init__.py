"""The write-ahead privacy-loss ledger: chain, rules, files, filters."""
