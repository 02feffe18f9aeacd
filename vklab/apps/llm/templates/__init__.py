"""Chat templates, executed in a process of their own."""
