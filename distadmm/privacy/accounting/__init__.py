"""What releases cost: events, their prices, and what may be said of them."""
