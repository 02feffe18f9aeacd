"""Session of one submission: its notebook under nbval, its kernel in the sandbox, its marks."""
