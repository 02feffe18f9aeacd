"""Commands of the course: `vklab lab` and `vklab course ...`, entry points that vklab.cli reads."""
