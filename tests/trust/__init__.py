"""What a definition that no person vouches for may do."""
