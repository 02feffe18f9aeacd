"""Answers to try the checks of lab 01b with: wrong ones, and a second right one for each."""

from vklab_course.author.answers import alternative, equivalent, wrong


def _roof(flops=2, share=0.8, bits=8, whole=False, both=False, ridge=1e3):
    """Return an answer to 01b-1 with one thing changed."""
    def roofline(sheet, dies=1, dual=False):
        if dies > sheet.dies:
            raise ValueError("so many dies are not there")
        count = sheet.dies if whole else dies
        pairs = sheet.issue if dual or both else 1
        tera = flops * count * pairs * sheet.units * sheet.lanes * (sheet.clock_mhz / 10**6)
        giga = sheet.bus_bits * sheet.gbit_per_pin * count / bits * share
        return tera, giga, tera / giga * ridge

    return roofline


alternative("01b-1")(_roof())
wrong("01b-1", says="expected 23.0707, got 11.5354  (TFLOP/s)")(_roof(flops=1))
wrong("01b-1", says="expected 983.04, got 1228.8  (GB/s)")(_roof(share=1))
wrong("01b-1", says="(GB/s)")(_roof(bits=1))
wrong("01b-1", says="one die, two dies, too many")(_roof(whole=True))
wrong("01b-1", says="RX 7900 XTX, dies=1: expected 30.72, got 61.44")(_roof(both=True))
wrong("01b-1", says="(the ridge in FLOP/byte)")(_roof(ridge=1))
wrong("01b-1", says="(the ridge in FLOP/byte)")(_roof(ridge=800))


@wrong("01b-1", says="expected ValueError to be raised")
def believes_in_three_dies(sheet, dies=1, dual=False):
    one = _roof()(sheet, 1, dual)
    return one[0] * dies, one[1] * dies, one[2]


@wrong("01b-1", says="the bytes in a second")
def multiplies_the_bus_only_once(sheet, dies=1, dual=False):
    tera, giga, _ = _roof()(sheet, dies, dual)
    return tera, giga * 0.8, 1e3 * tera / (giga * 0.8)


@wrong("01b-1", says="expected three numbers")
def gives_the_peak_alone(sheet, dies=1, dual=False):
    return _roof()(sheet, dies, dual)[0]


@wrong("01b-1", says="dual: expected 61.44, got 30.72")
def forgets_dual_issue(sheet, dies=1, dual=False):
    return _roof()(sheet, dies)


# ------------------------------------------------------------------------------------------ 01b-2

RIGHT = {"F": "other unit", "E": "twice", "D": "twice", "C": "one die", "B": "vector",
         "A": "swapped"}  # fmt: skip
alternative("01b-2")(RIGHT)
wrong("01b-2", says="not all right")({**RIGHT, "D": "vector"})
wrong("01b-2", says="'A' has no answer")({})
wrong("01b-2", says="'F': got 'stacks'; choose one of 'one die'")({**RIGHT, "F": "stacks"})
wrong("01b-2", says="not all right")(dict.fromkeys("ABCDEF", "vector"))

# ------------------------------------------------------------------------------------------ 01b-3


@alternative("01b-3")
def in_seconds(billions, tokens, gigabytes, tflops, gb_s, users=1):
    times = [(gigabytes / gb_s, "memory"),
             (2e9 * billions * tokens * users / (1e12 * tflops), "arithmetic")]
    seconds, limit = sorted(times, key=lambda pair: (-pair[0], pair[1]))[0]
    return 1000 * seconds, limit


@wrong("01b-3", says="(milliseconds)")
def counts_one_operation(billions, tokens, gigabytes, tflops, gb_s, users=1):
    return in_seconds(billions / 2, tokens, gigabytes, tflops, gb_s, users)


@wrong("01b-3", says="(milliseconds)")
def gives_seconds(billions, tokens, gigabytes, tflops, gb_s, users=1):
    ms, limit = in_seconds(billions, tokens, gigabytes, tflops, gb_s, users)
    return ms / 1000, limit


@wrong("01b-3", says="(milliseconds)")
def adds_both(billions, tokens, gigabytes, tflops, gb_s, users=1):
    _, limit = in_seconds(billions, tokens, gigabytes, tflops, gb_s, users)
    return 2 * billions * tokens * users / tflops + 1000 * gigabytes / gb_s, limit


@wrong("01b-3", says="several users")
def forgets_the_users(billions, tokens, gigabytes, tflops, gb_s, users=1):
    return in_seconds(billions, tokens, gigabytes, tflops, gb_s)


@wrong("01b-3", says="several users")
def reads_weights_for_each_user(billions, tokens, gigabytes, tflops, gb_s, users=1):
    return in_seconds(billions, tokens, gigabytes * users, tflops, gb_s, users)


@wrong("01b-3", says="several users")
def many_users_mean_arithmetic(billions, tokens, gigabytes, tflops, gb_s, users=1):
    ms, limit = in_seconds(billions, tokens, gigabytes, tflops, gb_s, users)
    return ms, "arithmetic" if users > 4 else limit


@wrong("01b-3", says="single tokens")
def reads_weights_for_each_token(billions, tokens, gigabytes, tflops, gb_s, users=1):
    return in_seconds(billions, tokens, gigabytes * tokens, tflops, gb_s, users)


@wrong("01b-3", says="expected 'arithmetic', got 'memory'  (the limit)")
def prompts_mean_arithmetic(billions, tokens, gigabytes, tflops, gb_s, users=1):
    ms, _ = in_seconds(billions, tokens, gigabytes, tflops, gb_s, users)
    return ms, "arithmetic" if tokens > 200 else "memory"


@wrong("01b-3", says="fastest_ms(1.0, 50, 1.0, 10.0, 100.0)")
def ties_go_to_memory(billions, tokens, gigabytes, tflops, gb_s, users=1):
    ms, limit = in_seconds(billions, tokens, gigabytes, tflops, gb_s, users)
    return ms, "memory" if ms == 1000 * gigabytes / gb_s else limit


LIMIT = "'memory' if memory > arithmetic else 'arithmetic')"
equivalent("01b-3", f"return (max(arithmetic, memory), {LIMIT}",
           f"return (max(memory, arithmetic), {LIMIT}", because="equal times are equal")

# ------------------------------------------------------------------------------------------ 01b-4


def _holds(boards, models, board, on):
    return (sum(models[name][0] for name in on) <= boards[board][1]
            and sum(models[name][1] for name in on) <= boards[board][2]
            and all(board in models[name][2] for name in on))  # fmt: skip


def _in_order(boards, models, order, key):
    bought = []
    for name in order:
        for board, on in bought:
            if _holds(boards, models, board, [*on, name]):
                on.append(name)
                break
        else:
            able = [b for b in boards if _holds(boards, models, b, [name])]
            bought.append((min(able, key=lambda b: key(*boards[b])), [name]))
    holding = [([b for b in boards if _holds(boards, models, b, on)], on) for _, on in bought]
    return [(min(able, key=lambda b: boards[b][0]), on) for able, on in holding]


@wrong("01b-4", says="the obvious answer needs 1000")
def one_after_the_other(boards, models):
    return _in_order(boards, models, list(models), lambda watts, gb, gb_s: watts)


@wrong("01b-4", says="the obvious answer needs")
def largest_first_on_cheap_gigabytes(boards, models):
    order = sorted(models, key=lambda name: -models[name][0])
    return _in_order(boards, models, order, lambda watts, gb, gb_s: watts / gb)


@wrong("01b-4", says="the obvious answer needs")
def one_board_each(boards, models):
    return [_in_order(boards, models, [name], lambda w, gb, gb_s: w)[0] for name in models]


@wrong("01b-4", says="the obvious answer needs")
def joins_pairs(boards, models):
    bought = one_board_each(boards, models)
    while True:
        gains = []
        for i, (one, on) in enumerate(bought):
            for j, (two, others) in enumerate(bought[:i]):
                for board in (b for b in boards if _holds(boards, models, b, [*on, *others])):
                    gain = boards[one][0] + boards[two][0] - boards[board][0]
                    gains.append((gain, i, j, board))
        gain, i, j, board = max(gains, default=(0, 0, 0, ""))
        if gain <= 0:
            return bought
        joined = (board, [*bought[i][1], *bought[j][1]])
        bought = [pair for k, pair in enumerate(bought) if k not in (i, j)] + [joined]


@wrong("01b-4", says="does not run on")
def forgets_the_backends(boards, models):
    every = {name: (gb, gb_s, tuple(boards)) for name, (gb, gb_s, _) in models.items()}
    return by_branches(boards, every)


@wrong("01b-4", says="GB/s, ")
def forgets_the_bandwidth(boards, models):
    return by_branches(boards, {name: (gb, 0, on) for name, (gb, _, on) in models.items()})


@wrong("01b-4", says="the models that have a board, each once")
def leaves_one_out(boards, models):
    return by_branches(boards, models)[1:]


@wrong("01b-4", says="expected a list of (board, models), got {")
def gives_a_dictionary(boards, models):
    return {name: board for board, on in by_branches(boards, models) for name in on}


@wrong("01b-4", says="do not buy it")
def buys_an_empty_board(boards, models):
    return [*by_branches(boards, models), (next(iter(boards)), [])]


@wrong("01b-4", says="on the third drawn list: ")
def puts_four_on_a_board_at_most(boards, models):
    return by_branches(boards, models, most=4)


@alternative("01b-4")
def by_branches(boards, models, most=7):
    names, best = list(models), [10**9, []]

    def place(number, bought, watts):
        if watts >= best[0]:
            return
        if number == len(names):
            best[:] = watts, [(board, list(on)) for board, on in bought]
            return
        for k, (board, on) in enumerate(bought):
            if len(on) < most and _holds(boards, models, board, [*on, names[number]]):
                more = [*bought[:k], (board, [*on, names[number]]), *bought[k + 1:]]
                place(number + 1, more, watts)
        for board in boards:
            if _holds(boards, models, board, [names[number]]):
                place(number + 1, [*bought, (board, [names[number]])], watts + boards[board][0])

    place(0, [], 0)
    return best[1]


for other in ("1", "-1"):
    equivalent("01b-4", "return (0, [])", f"return ({other}, [])",
               because="every plan gets the same constant more")
