"""Times of models on vklab and on other runtimes, measured in turn."""
