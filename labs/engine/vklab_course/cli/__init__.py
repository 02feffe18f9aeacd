"""Commands of the course: `vklab lab` and `vklab course ...`, entry points of `vklab.apps.cli`."""
