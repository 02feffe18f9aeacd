"""Small graphs and models, written for one operator, pass or property."""
