from vklab.apps.onnx_backend import *
