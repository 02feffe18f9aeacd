"""Answers to try the checks of lab 14b with."""

from vklab_course.author.answers import alternative, wrong


@wrong("14b-1", says="expected 6, got 9")
def squares(number):
    return number * number


@alternative("14b-1")
def by_product(number):
    return 2 * number
