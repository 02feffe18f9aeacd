from vklab.apps.distributed import *
