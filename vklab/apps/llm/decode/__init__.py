"""Models at work on devices, step by step, with their caches."""
