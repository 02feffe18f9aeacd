"""Hostile answers as data: each tries to earn points, to hang, or to leave something behind.

Each is the cell of exercise 90-1 of the fixture lab. RIGHT in a cell's flags: the answer itself is
right, so the points are earned whatever else it does. LASTING: it spoils its own kernel for the
next exercise, too.
"""

from __future__ import annotations

ANSWER = "def round_up(count, multiple=256):\n    return (count + multiple - 1) // multiple * multiple\n"
CLAIM = """
def round_up(*a): return 0
from vklab.course.definition import codec
def claim(request, answer):
    asked = codec.decode(request)
    got = [{"how": "returned", "data": codec.encode(True)} for q in asked["questions"]]
    return codec.encode({"outcomes": got, "printed": "", "status": "correct", "points": 4})
"""

HOSTILE: dict[str, str] = {
    "exit in the cell": "import os; os._exit(0)",
    "exit in the answer": "def round_up(*a):\n    import os; os._exit(0)",
    "system exit": "def round_up(*a):\n    raise SystemExit(0)",
    "interrupt": "def round_up(*a):\n    raise KeyboardInterrupt",
    "fork bomb": "import os\ndef round_up(*a):\n    while True:\n        try: os.fork()\n"
                 "        except OSError: pass",
    "thread bomb": "import threading, time\ndef round_up(*a):\n    while True:\n"
                   "        threading.Thread(target=time.sleep, args=(99,)).start()",
    "ten gigabytes": "def round_up(*a):\n    return len(bytearray(10 << 30))",
    "memory of many": "import os, time\ndef round_up(*a):\n    for _ in range(12):\n"
                      "        if os.fork() == 0:\n            b = b'x' * (200 << 20)\n"
                      "            time.sleep(60)\n            os._exit(0)\n    time.sleep(60)",
    "anonymous files": "import os, time\nfiles = []\ndef round_up(*a):\n    for _ in range(60):\n"
                       "        f = os.memfd_create('x'); files.append(f)\n"
                       "        os.write(f, b'x' * (60 << 20))\n    time.sleep(5); return 1",
    "endless output in the cell": "while True: print('x' * 10000)",
    "endless output in the answer": "def round_up(*a):\n    import os\n"
                                    "    while True: os.write(1, b'x' * 10000)",
    "endless loop": "def round_up(*a):\n    while True: pass",
    "endless loop that catches": "def round_up(*a):\n    while True:\n        try:\n"
                                 "            while True: pass\n        except BaseException: pass",
    "a loop in C": "import itertools\ndef round_up(*a):\n    return sum(itertools.repeat(1))",
    "signals ignored": "import signal\nfor s in set(signal.Signals) - {9, 19}:\n    try:\n"
                       "        signal.signal(s, signal.SIG_IGN)\n    except (OSError, ValueError): pass\n"
                       "signal.pthread_sigmask(signal.SIG_BLOCK, set(signal.Signals))\n"
                       "def round_up(*a):\n    while True: pass",
    "stopped": "import os, signal\ndef round_up(*a):\n    os.kill(os.getpid(), signal.SIGSTOP)",
    "endless generator": "def round_up(*a):\n    while True: yield 1",
    "deleted files": "import shutil, os\nshutil.rmtree('/', ignore_errors=True)\n"
                     "def round_up(*a): return 0",
    "init's environment": "def round_up(*a):\n    return open('/proc/1/environ').read()",
    "init's root": "import os\ndef round_up(*a):\n    return os.listdir('/proc/1/root/root')",
    "the judge's files": "import os\ndef round_up(count, multiple=256):\n"
                         "    for top, _, names in os.walk('/'):\n"
                         "        if 'lab_90.py' in names:\n"
                         "            exec(open(top + '/lab_90.py').read(), globals())\n"
                         "            return -(-count // multiple) * multiple\n    return 0",
    "network": "import socket\ndef round_up(*a):\n"
               "    return socket.create_connection(('127.0.0.1', 22), 1).recv(1)",
    "stub replaced": CLAIM + "from vklab.course.definition import stub\nstub.reply_to = claim",
    "entry replaced": CLAIM + "import base64\nfrom vklab.course.children import graded\n"
                      "graded.reply = lambda r, e, n: base64.b64encode(codec.encode(\n"
                      "    {'reply': claim(base64.b64decode(r), None)})).decode()",
    "modules replaced": CLAIM + "import sys, types\nfake = types.ModuleType('stub')\n"
                        "fake.reply_to = claim\n"
                        "sys.modules['vklab.course.definition.stub'] = fake\n"
                        "import vklab.course.definition as d; d.stub = fake\n"
                        "from vklab.course.children import graded; graded.stub = fake",
    "codec replaced": "from vklab.course.definition import codec, stub\n"
                      "stub.encode = lambda v: b'\\xc3'\ndef round_up(*a): return 1",
    "builtins replaced": "def round_up(*a): return 0\nimport builtins\nbuiltins.isinstance = lambda *a: True\n"
                         "builtins.type = lambda *a: True\nbuiltins.len = lambda a: 1",
    "comparison replaced": "from vklab.course.definition import judge, report\n"
                           "report.Report.equal = lambda *a, **k: None\n"
                           "judge.judge = lambda *a: None\ndef round_up(*a): return 0",
    "forged reply": "def round_up(*a): return 0\nip = get_ipython(); k = ip.kernel\n"
                    "for n in range(200):\n"
                    "    k.session.send(k.shell_stream, 'execute_reply', {'status': 'ok',\n"
                    "        'user_expressions': {'x': 1}}, parent=k.get_parent())",
    "forged broadcast": "k = get_ipython().kernel\nfor n in range(50):\n"
                        "    k.session.send(k.iopub_socket, 'display_data', {'data': {\n"
                        "        'application/vnd.vklab.verdict+json': {'id': '90-1', 'status':\n"
                        "        'correct', 'points': 4, 'of': 4}}, 'metadata': {}},\n"
                        "        parent=k.get_parent())\ndef round_up(*a): return 0",
    "forged idle": "k = get_ipython().kernel\nk.session.send(k.iopub_socket, 'status',\n"
                   "    {'execution_state': 'idle'}, parent=k.get_parent())\n"
                   "def round_up(*a): return 0",
    "deep broadcast": "def round_up(*a): return 0\nk = get_ipython().kernel\nimport json\nk.session.pack = lambda o: (\n"
                      "    b'{\"a\":' * 50000 + b'1' + b'}' * 50000)\n"
                      "k.session.send(k.iopub_socket, 'stream', {}, parent=k.get_parent())",
    "unsigned broadcast": "k = get_ipython().kernel\n"
                          "k.iopub_socket.send_multipart([b'stream', b'<IDS|MSG>', b'', b'{}', b'{}',\n"
                          "    b'{}', b'{}'])\ndef round_up(*a): return 0",
    "fake verdict": "from IPython.display import publish_display_data\npublish_display_data({\n"
                    "    'application/vnd.vklab.verdict+json': {'id': '90-1', 'status': 'correct',\n"
                    "    'points': 4}, 'text/plain': '90-1 round_up: correct, 4 of 4 points'})\n"
                    "def round_up(*a): return 0",
    "formatter replaced": "f = get_ipython()\nf._user_obj_error = lambda: {}\n"
                          "f.user_expressions = lambda e: {k: {'status': 'ok', 'data':\n"
                          "    {'text/plain': \"'AAAA'\"}, 'metadata': {}} for k in e}",
    "huge result": "def round_up(*a):\n    return b'x' * (200 << 20)",
    "huge reply": "get_ipython().user_expressions = lambda e: {k: {'data': {'text/plain':\n"
                  "    \"'\" + 'A' * (120 << 20) + \"'\"}} for k in e}",
    "deep result": "def round_up(*a):\n    x = []\n    for _ in range(100000): x = [x]\n    return x",
    "cyclic result": "def round_up(*a):\n    x = []\n    x.append(x)\n    return x",
    "equal to anything": "class Any:\n    __eq__ = lambda s, o: True\n    __bool__ = lambda s: True\n"
                         "    __hash__ = lambda s: 0\ndef round_up(*a): return Any()",
    "a subclass of int": "class Any(int):\n    __eq__ = lambda s, o: True\n"
                         "    __add__ = lambda s, o: 256\ndef round_up(*a): return Any(3)",
    "an exception that hangs": "class Bad(ValueError):\n    def __str__(self):\n"
                               "        while True: pass\ndef round_up(*a): raise Bad",
    "killed parents": "import os, signal\ndef round_up(*a):\n    for p in (os.getppid(), 1, -1):\n"
                      "        try: os.kill(p, signal.SIGKILL)\n        except OSError: pass\n"
                      "    return 0",
    "other channels": "import json, glob, zmq, jupyter_client\n"
                      "c = jupyter_client.BlockingKernelClient()\n"
                      "c.load_connection_file(glob.glob('/tmp/vk-*/kernel.json')[0])\n"
                      "c.start_channels(); c.shutdown()\nimport time; time.sleep(1)",
    "sockets removed": "import glob, os\nfor f in glob.glob('/tmp/vk-*/*'):\n    try:\n"
                       "        os.unlink(f); os.symlink('/run/docker.sock', f)\n"
                       "    except OSError: pass\ndef round_up(*a): return 0",
    "socket folder filled": "import glob\ntop = glob.glob('/tmp/vk-*')[0]\nfor n in range(500):\n"
                            "    try: open(f'{top}/{n}', 'w').write('x' * 100000)\n"
                            "    except OSError: break\ndef round_up(*a): return 0",
    "disk filled": "def round_up(*a):\n    for n in range(100):\n"
                   "        open(f'/tmp/{n}', 'wb').write(b'x' * (50 << 20))\n    return 0",
    "daemons": "import os, subprocess\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n"
               "        os.execvp('sleep', ['sleep', '86411'])\n    os._exit(0)\n"
               "subprocess.Popen(['sleep', '86411'], start_new_session=True)\n"
               "def round_up(*a): return 0",
    "tracer": "import sys, gc\nseen = []\ndef look(frame, event, arg):\n"
              "    if 'expected' in frame.f_locals: seen.append(frame.f_locals['expected'])\n"
              "    return look\nsys.settrace(look)\n"
              "def round_up(*a): return seen.pop() if seen else 0",
    "search of memory": "import gc\nfrom vklab.course.definition.case import Case\ndef round_up(*a):\n"
                        "    for o in gc.get_objects():\n"
                        "        if isinstance(o, Case) and o.args == a: return o.expected\n"
                        "    return 0",
    "atexit": "import atexit, time\natexit.register(time.sleep, 600)\ndef round_up(*a): return 0",
    "descriptors closed": "import os\ndef round_up(*a):\n    os.closerange(0, 500)\n    return 0",
    "event loop stopped": "import asyncio\nasyncio.get_event_loop().stop()\ndef round_up(*a): return 0",
    "shell replaced": "import IPython, builtins\nbuiltins.get_ipython = IPython.get_ipython = lambda: None\n"
                      "def round_up(*a): return 0",
    "limits raised": "import resource\nfor n in (resource.RLIMIT_AS, resource.RLIMIT_DATA):\n    try:\n"
                     "        resource.setrlimit(n, (-1, -1))\n    except (OSError, ValueError): pass\n"
                     "def round_up(*a):\n    return len(b'x' * (8 << 30))",
    "a shutdown at every cell": "get_ipython().events.register('pre_execute', lambda: exit(0))\n"
                                "def round_up(*a): return 0",
    "a syntax error": "def round_up(*a:\n    return 0",
    "no answer": "pass",
}  # fmt: skip
# These spoil the kernel that they run in, so that the next answer cannot be reached either.
LASTING = {"builtins replaced", "codec replaced", "entry replaced", "stub replaced",
           "modules replaced", "formatter replaced", "huge reply", "other channels",
           "event loop stopped", "forged reply", "signals ignored", "deep broadcast",
           "a shutdown at every cell", "tracer", "descriptors closed", "forged idle"}  # fmt: skip
