"""What we decide: admit, filter, rank, reserve. Pure; time and randomness are arguments."""
