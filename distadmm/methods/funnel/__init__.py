"""The privacy funnel: release Y of a public X with I(X;Y) >= R that says as little as possible of a private S."""
