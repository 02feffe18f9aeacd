from vklab.apps.llm import *
