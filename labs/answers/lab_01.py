"""Answers to try the checks of lab 01 with: wrong ones, and a second right one for each."""

import re

from vklab_course.author.answers import alternative, wrong

WIDE = "0xffffffffffffffffull"


@wrong("01-1", says="line 1")
def replaces_the_word(text, names):
    return text.replace("cuda", "hip").replace("cublas", "hipblas").replace("CUBLAS", "HIPBLAS")


@wrong("01-1", says="0 of 4 points")
def replaces_every_name(text, names):
    for old, new in names.items():
        text = text.replace(old, new)
    return text.replace("0xffffffff", WIDE)


@wrong("01-1", says="comments and strings stay")
def forgets_comments(text, names):
    text = re.sub(r"<[\w./]+>|\w+", lambda found: names.get(found[0], found[0]), text)
    return re.sub(r"(_sync\s*\(\s*)0[xX][fF]{8}[uU]?\b", rf"\g<1>{WIDE}", text)


def _by_lines(mask, header=r"<[\w./]+\.h>|", start=r"\w*_sync\s*\(\s*", known=None):
    """Return an answer that goes through one pattern from left to right."""
    pattern = re.compile(r'(?P<people>//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\])*")|'
                         rf"(?P<start>{start})(?P<mask>{mask})|(?P<name>{header}\w+)", re.DOTALL)

    def hipify(text, names):
        def one(found):
            if found["people"]:
                return found[0]
            if found["mask"]:
                return found["start"] + WIDE
            return (known or names).get(found["name"], found["name"])

        return pattern.sub(one, text)

    return hipify


MASK = r"0[xX][fF]{8}[uU]?\b"
alternative("01-1")(_by_lines(MASK))
wrong("01-1", says="masks of 32 lanes")(_by_lines(r"0xffffffff\b"))
wrong("01-1", says="masks of 32 lanes")(_by_lines(MASK, start=r""))
wrong("01-1", says="masks of 32 lanes")(_by_lines(MASK, start=r"\w*sync\s*\(\s*"))
wrong("01-1", says="masks of 32 lanes")(_by_lines(MASK, start=r"\w*_sync\("))
wrong("01-1", says="masks of 32 lanes")(_by_lines(MASK, start=r"\w*_sync\w*\s*\(\s*"))
wrong("01-1", says="headers in angle brackets")(_by_lines(MASK, header=""))
wrong("01-1", says="on 'std::vector<")(_by_lines(MASK, header=r"<[\w./]+>|"))
wrong("01-1", says="whole names of the table, and no others (1)\n      on")(_by_lines(MASK, known={
    "<cuda_runtime.h>": "<hip/hip_runtime.h>", "<cuda_fp16.h>": "<hip/hip_fp16.h>",
    "<cublas_v2.h>": "<hipblas.h>", "cudaMalloc": "hipMalloc", "cudaFree": "hipFree",
    "cudaDeviceProp": "hipDeviceProp_t", "cudaThreadSynchronize": "hipDeviceSynchronize",
    "cublasSgemm": "hipblasSgemm", "CUBLAS_OP_N": "HIPBLAS_OP_N",
}))  # fmt: skip


@wrong("01-1", says="whole names of the table, and no others (1)\n      on 'one(two)")
def replaces_name_after_name(text, names):
    parts = re.split(r'(//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\])*")', text, flags=re.DOTALL)
    for old, new in names.items():
        word = old if old[0] == "<" else rf"\b{old}(?![\w.])"
        parts[::2] = [re.sub(word, new, part) for part in parts[::2]]
    return "".join(parts)


@wrong("01-1", says="brackets, and only they (1)\n      on '#include <cudaMalloc.h>")
def replaces_headers_first(text, names):
    return _by_lines(MASK)(text.replace("<cudaMalloc.h>", "<hipMalloc.h>"), names)


@wrong("01-1", says="the number of lines")
def loses_the_comments(text, names):
    hipped = _by_lines(MASK)(text, names)
    return "".join(re.split(r"//[^\n]*\n|/\*.*?\*/", hipped, flags=re.DOTALL))


# ------------------------------------------------------------------------------------------- 01-2


@wrong("01-2", says="expected ('cuda', 'CUDA'), got ('cuda', 'ROCm')")
def looks_for_amd(facts, float64=False):
    if facts.get("cuda"):
        return "cuda", "ROCm" if "AMD" in "".join(facts.get("names", ())) else "CUDA"
    return by_table(facts, float64)


@wrong("01-2", says="expected ('cpu', 'CPU'), got ('cuda', 'ROCm')")
def trusts_the_version(facts, float64=False):
    return ("cuda", "ROCm") if facts.get("hip") else by_table(facts, float64)


@wrong("01-2", says="KeyError: 'cuda'")
def expects_every_fact(facts, float64=False):
    if not facts["cuda"] and facts["xpu"]:
        return "xpu", "SYCL"
    return by_table(facts, float64)


@wrong("01-2", says="expected ('cuda', 'ROCm'), got ('hip', 'ROCm')")
def names_the_device_hip(facts, float64=False):
    device, backend = by_table(facts, float64)
    return ("hip", backend) if backend == "ROCm" else (device, backend)


@wrong("01-2", says="float64: expected ('cpu', 'CPU'), got ('mps', 'Metal')")
def forgets_float64(facts, float64=False):
    return by_table(facts)


@wrong("01-2", says="expected ('xpu', 'SYCL'), got ('mps', 'Metal')")
def asks_apple_first(facts, float64=False):
    return ("mps", "Metal") if facts.get("mps") and not float64 else by_table(facts, float64)


@alternative("01-2")
def by_table(facts, float64=False):
    rows = [("cuda", "CUDA"), ("xpu", "SYCL"), ("mps", "Metal")]
    found = [row for row in rows if facts.get(row[0], False)]
    if float64 and rows[2] in found:
        found.remove(rows[2])
    device, backend = [*found, ("cpu", "CPU")][0]
    return device, "ROCm" if device == "cuda" and facts.get("hip") is not None else backend


# ------------------------------------------------------------------------------------------- 01-3


@alternative("01-3")
def by_filters(backends, machines, job, wishes=()):
    left = dict(backends)
    for machine in machines:
        left = {n: b for n, b in left.items() if machine in b.runs_on}
        if "direct" in wishes:
            left = {n: b for n, b in left.items() if b.runs_on[machine] != "translated"}
    if "open" in wishes:
        left = {n: b for n, b in left.items() if b.open_source}
    if "spare" in wishes:
        own = tuple(f"{machine.split('/')[0]}/" for machine in machines)
        left = {n: b for n, b in left.items() if any(not m.startswith(own) for m in b.runs_on)}
    return {name for name, backend in left.items() if job in backend.jobs}


def _with(change):
    """Return an answer that is right but for one change of its arguments."""
    def admissible(backends, machines, job, wishes=()):
        return by_filters(*change(backends, machines, job, wishes))

    return admissible


wrong("01-3", says="is not admissible")(_with(lambda b, m, j, w: (b, m[:1], j, w)))
wrong("01-3", says="the wishes for open source")(_with(lambda b, m, j, w: (b, m, j, ())))
wrong("01-3", says="another vendor is left")(_with(lambda b, m, j, w: (b, m, j, w[:2])))
wrong("01-3", says="the wishes for open source")(
    _with(lambda b, m, j, w: (b, m, j, tuple({"open", *w}))))  # fmt: skip
wrong("01-3", says="another vendor is left")(
    _with(lambda b, m, j, w: (b, m, j, tuple(x for x in w if x != "spare"))))  # fmt: skip


@wrong("01-3", says="is not admissible")
def runs_on_any(backends, machines, job, wishes=()):
    return set().union(*(by_filters(backends, (m,), job, wishes) for m in machines or ["x/y"]))


@wrong("01-3", says="it does the job")
def forgets_the_job(backends, machines, job, wishes=()):
    return set().union(*(by_filters(backends, machines, j, wishes)
                         for j in ("kernels", "training", "network", "chat")))  # fmt: skip


@wrong("01-3", says="another vendor is left")
def counts_machines_as_spare(backends, machines, job, wishes=()):
    rest = tuple(wish for wish in wishes if wish != "spare")
    return {name for name in by_filters(backends, machines, job, rest)
            if "spare" not in wishes or len(backends[name].runs_on) > len(machines)}  # fmt: skip


@wrong("01-3", says="the wishes for open source")
def looks_at_all_machines(backends, machines, job, wishes=()):
    rest = tuple(wish for wish in wishes if wish != "direct")
    return {name for name in by_filters(backends, machines, job, rest) if "direct" not in wishes
            or "translated" not in backends[name].runs_on.values()}  # fmt: skip


wrong("01-3", says="expected a set of names, got [")(lambda *case: sorted(by_filters(*case)))


@wrong("01-3", says="it does the job")
def looks_for_the_job_in_one_text(backends, machines, job, wishes=()):
    return set().union(*(by_filters(backends, machines, word, wishes)
                         for word in ("kernels", "training", "network", "chat") if job in word))

# ------------------------------------------------------------------------------------------- 01-4

RIGHT = {"F": "usm", "E": "windows", "D": "manifest", "C": "honeykrisp", "B": "holds",
         "A": "zluda"}  # fmt: skip
alternative("01-4")(RIGHT)
wrong("01-4", says="not all right")({**RIGHT, "B": "windows"})
wrong("01-4", says="'A' has no answer")({})
wrong("01-4", says="'D': got 'driver'; choose one of 'holds'")({**RIGHT, "D": "driver"})
wrong("01-4", says="not all right")(dict.fromkeys("ABCDEF", "holds"))
