"""Files, child processes, drawings, traces and late loading, which every folder may import."""
