"""Answers to try the checks of lab 10 with: wrong ones, and a second right one for each."""

from vklab.course.author.answers import alternative, wrong
