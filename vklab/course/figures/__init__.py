"""Pictures that several labs draw."""
