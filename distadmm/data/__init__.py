"""Tables with their origin, and what gives each node its rows."""
