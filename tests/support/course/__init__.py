"""Classes, notebooks and answers for the tests of the course."""
