"""Definition of an exercise: its cases, its oracle, its comparison, and the judge of answers."""
