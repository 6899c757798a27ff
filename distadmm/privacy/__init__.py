"""Privacy that can be checked: accounting, ledgers, noise."""
