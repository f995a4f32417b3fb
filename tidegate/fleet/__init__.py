"""What we know of the fleet: pure data and pure functions, one writer, time as an argument."""
