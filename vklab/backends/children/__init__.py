"""Child processes of backends: the worker, what a child is asked, and times taken in turn."""
