"""Answers to try the checks of the class's lab with."""

from vklab_course.author.answers import alternative, wrong


@wrong("91-1", says="expected")
def rounds_down(count, multiple=256):
    return count // multiple * multiple


@wrong("91-1", says="expected")
def one_more(count, multiple=256):
    return (count // multiple + 1) * multiple


wrong("91-2", says="expected 16")(15)
alternative("91-2")(-(-1000 // 64))
