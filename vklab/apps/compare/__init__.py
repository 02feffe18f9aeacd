"""Other runtimes beside vklab: one protocol, one process each, one honest parity report.

Rule: `import vklab` loads nothing of this package. Heavy packages (torch, onnxruntime,
coremltools) are imported only by the module that owns them, through a named loader.
"""
