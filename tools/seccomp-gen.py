#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""seccomp-gen - compile src/native/seccomp.policy to classic BPF, as a C header.

    seccomp-gen.py [POLICY] -o HEADER        the header that seccomp.c includes (meson runs this)
    seccomp-gen.py [POLICY] --golden PROFILE ARCH
                                             what scdump must print for a process under PROFILE
    seccomp-gen.py [POLICY] --stats          sizes and counts

A program is: wrong architecture -> kill; then a balanced tree of comparisons over the ranges of
call numbers that share a verdict; argument checks hang on the tree as leaves. It is assembled from
the last instruction to the first, so that every jump target already has a place. A conditional
jump reaches 255 instructions; farther targets get a copy of the return, or an unconditional jump
(32-bit offset), right behind the comparison.
"""

import argparse
import errno
import functools
import hashlib
import pathlib
import re
import struct
import sys

AUDIT_ARCH = {"x86_64": 0xC000003E, "x32": 0xC000003E, "i386": 0x40000003}
X32_BIT = 0x40000000
X32_END = 0x80000000  # from here numbers are negative: never dispatched, so merely unknown
WORD_END = 1 << 32
LAST_KNOWN = 469  # the newest call named in the policy; later numbers are dumped without a name
DUMP_END = 1024

RET_KILL_PROCESS, RET_ERRNO, RET_ALLOW = 0x80000000, 0x00050000, 0x7FFF0000
LD, AND, JA, JEQ, JGE, RET = 0x20, 0x54, 0x05, 0x15, 0x35, 0x06
OFFSET_NR, OFFSET_ARCH, OFFSET_ARGS = 0, 4, 16  # struct seccomp_data

ERRNO_NAMES = {**errno.errorcode, errno.EOPNOTSUPP: "EOPNOTSUPP", errno.EDEADLK: "EDEADLK"}
HEADER_DIRS = ("/usr/include/x86_64-linux-gnu/asm", "/usr/include/asm")


class PolicyError(Exception):
    pass


class Condition:
    """The low 32 bits of argument `arg`, and `mask`, are one of `values`."""

    def __init__(self, arg, mask, values):
        self.arg, self.mask, self.values = arg, mask, values

    def holds(self, args):
        return args[self.arg] & self.mask in self.values


class Rule:
    """`verdict` when all `conditions` hold; without conditions: always."""

    def __init__(self, verdict, conditions):
        self.verdict, self.conditions = verdict, conditions


class Profile:
    """call number -> verdict (int) or list of rules; what is absent gets `default`."""

    def __init__(self, name, default, calls):
        self.name, self.default, self.calls = name, default, dict(calls)

    def verdict(self, nr, arch, args):
        """The meaning of the policy, from which the compiled program must not differ."""
        if arch != AUDIT_ARCH["x86_64"] or X32_BIT <= nr < X32_END:
            return RET_KILL_PROCESS
        target = self.calls.get(nr, self.default)
        if isinstance(target, int):
            return target
        return next(r.verdict for r in target if all(c.holds(args) for c in r.conditions))


def header_numbers(file_name):
    for directory in HEADER_DIRS:
        path = pathlib.Path(directory) / file_name
        if path.exists():
            text = path.read_text()
            number = r"(?:\(__X32_SYSCALL_BIT \+ )?(\d+)"
            found = re.findall(r"^#define __NR_(\w+)\s+" + number, text, re.M)
            return {name: int(nr) for name, nr in found}
    raise PolicyError(f"<asm/{file_name}>: not found in {' or '.join(HEADER_DIRS)}")


class Policy:
    """The parsed table: `profiles` by name, `numbers` (name -> number), `consts`."""

    def __init__(self, path):
        self.numbers = header_numbers("unistd_64.h")
        self.later = {}  # the policy's own "number" lines
        self.consts, self.profiles, self.named = {}, {}, set()
        lines = self._logical_lines(pathlib.Path(path).read_text())
        try:
            self._read_definitions(lines)
            self._read_sections(lines)
        except PolicyError as e:
            raise PolicyError(f"{path}:{self.line}: {e}") from None

    @staticmethod
    def _logical_lines(text):
        lines = []
        for number, raw in enumerate(text.splitlines(), 1):
            line = raw.split("#", 1)[0].rstrip()
            if line.startswith("\t\t") and lines:
                lines[-1][2] += " " + line.strip()
            elif line:
                lines.append([number, line.startswith("\t"), line.strip()])
        return lines

    def _read_definitions(self, lines):
        for self.line, indented, text in lines:
            words = text.split()
            if indented or words[0] not in ("const", "number"):
                continue
            if len(words) != 3:
                raise PolicyError(f"{words[0]} wants a name and a value")
            if words[0] == "const":
                octal = re.fullmatch("0[0-7]+", words[2])
                self._define(self.consts, words[1], int(words[2], 8 if octal else 0))
            else:
                self._define(self.later, words[1], int(words[2]))
        for name, nr in self.later.items():
            if self.numbers.setdefault(name, nr) != nr:
                raise PolicyError(f"{name} is {self.numbers[name]} in the header, {nr} here")

    @staticmethod
    def _define(table, name, value):
        if table.setdefault(name, value) != value:
            raise PolicyError(f"{name} is defined twice")

    def _read_sections(self, lines):
        profile = Profile("default", None, {})
        self.profiles["default"] = profile
        section, seen, added_rules = None, set(), {}

        def flush():
            for nr, rules in added_rules.items():
                old = profile.calls.get(nr, profile.default)
                if rules[-1].conditions:
                    if profile.name == "default":
                        raise PolicyError("args: the last rule has a condition")
                    rules = rules + (old if isinstance(old, list) else [Rule(old, [])])
                if any(not r.conditions for r in rules[:-1]):
                    raise PolicyError("args: a rule behind one without condition")
                profile.calls[nr] = rules
            added_rules.clear()

        for self.line, indented, text in lines:
            words = text.split()
            if indented:
                if section is None:
                    raise PolicyError("indented line outside a section")
                if section[0] == "args":
                    added_rules[section[1]].append(self._rule(text))
                    continue
                for name in words:
                    self._claim(seen, name)
                    profile.calls[self._number(name)] = section[1]
                continue
            section = None
            if words[0] in ("const", "number"):
                continue
            if words[0] == "default":
                profile.default = self._verdict(words[1:])
            elif words[0] == "foreign":
                if self._verdict(words[1:]) != RET_KILL_PROCESS:
                    raise PolicyError("foreign architectures are killed, nothing else is built")
            elif words[0] == "profile":
                flush()
                base = self.profiles["default"]
                profile = Profile(words[1], base.default, base.calls)
                self._define(self.profiles, words[1], profile)
                seen = set()
            elif words[0] == "args":
                self._claim(seen, words[1])
                section = ("args", self._number(words[1]))
                added_rules[section[1]] = []
            else:
                section = ("calls", self._verdict(words))
        flush()

    def _claim(self, seen, name):
        if name in seen:
            raise PolicyError(f"{name} has two verdicts")
        seen.add(name)
        self.named.add(name)

    def _number(self, name):
        if name not in self.numbers:
            raise PolicyError(f"{name}: no such call (newer ones want a \"number\" line)")
        return self.numbers[name]

    @staticmethod
    def _verdict(words):
        if words == ["allow"]:
            return RET_ALLOW
        if words == ["kill"]:
            return RET_KILL_PROCESS
        if len(words) == 2 and words[0] == "errno" and hasattr(errno, words[1]):
            return RET_ERRNO | getattr(errno, words[1])
        raise PolicyError(f"not a verdict: {' '.join(words)}")

    def _rule(self, text):
        verdict, _, when = text.partition(" when ")
        conditions = [self._condition(c.strip()) for c in when.split(",")] if when else []
        return Rule(self._verdict(verdict.split()), conditions)

    def _condition(self, text):
        m = re.fullmatch(r"arg([0-5])(?: & (\w+))? = (.+)", text)
        if not m:
            raise PolicyError(f"not a condition: {text}")
        mask = self._value(m[2]) if m[2] else WORD_END - 1
        values = {self._value(v) for v in m[3].split()}
        if any(v & ~mask for v in values):
            raise PolicyError(f"a value lies outside the mask: {text}")
        return Condition(int(m[1]), mask, values)

    def _value(self, word):
        value = self.consts[word] if word in self.consts else None
        if value is None:
            if not re.fullmatch(r"0x[0-9a-f]+|\d+", word):
                raise PolicyError(f"{word}: no such constant")
            value = int(word, 0)
        if not 0 <= value < WORD_END:
            raise PolicyError(f"{word}: does not fit 32 bits")
        return value


class Assembler:
    """Instructions in reverse: a place is an index into `code`, and targets have lower places."""

    def __init__(self):
        self.code = []  # (opcode, k, place if true, place if false)
        self.returns = {}  # verdict -> newest place

    def _emit(self, opcode, k, true=None, false=None):
        self.code.append((opcode, k, true, false))
        return len(self.code) - 1

    def _in_reach(self, place):
        return len(self.code) - place - 1 <= 255

    def ret(self, verdict):
        place = self.returns.get(verdict)
        if place is None or not self._in_reach(place):
            place = self.returns[verdict] = self._emit(RET, verdict)
        return place

    def branch(self, opcode, k, true, false):
        while not (self._in_reach(true) and self._in_reach(false)):
            if not self._in_reach(true):
                true = self._bridge(true)
            else:
                false = self._bridge(false)
        return self._emit(opcode, k, true, false)

    def _bridge(self, place):
        opcode, k, _, _ = self.code[place]
        return self.ret(k) if opcode == RET else self._emit(JA, None, place)

    def load(self, offset, then):
        """Load a word (and whatever `then` does, which must be the newest instruction)."""
        assert then == len(self.code) - 1
        return self._emit(LD, offset)

    def mask(self, mask, then):
        assert then == len(self.code) - 1
        return self._emit(AND, mask)

    def tree(self, ranges, place_of):
        """ranges: sorted (first value, leaf), adjacent leaves differ; leaf -> place by place_of."""

        def is_single(i, j):  # x, one value of y, x again: one comparison does
            return (j - i == 3 and ranges[i][1] is ranges[i + 2][1]
                    and ranges[i + 2][0] - ranges[i + 1][0] == 1)

        def splits(i, j):
            middle = (i + j) // 2
            return [m for m in range(middle - 2, middle + 3) if i < m < j]

        @functools.lru_cache(None)
        def cost(i, j):
            if j - i == 1:
                return 0
            if is_single(i, j):
                return 1
            return 1 + min(cost(i, m) + cost(m, j) for m in splits(i, j))

        def build(i, j):
            if j - i == 1:
                return place_of(ranges[i][1])
            if is_single(i, j):
                false = place_of(ranges[i][1])
                return self.branch(JEQ, ranges[i + 1][0], place_of(ranges[i + 1][1]), false)
            m = min(splits(i, j), key=lambda m: (cost(i, m) + cost(m, j), abs(2 * m - i - j)))
            true = build(m, j)
            return self.branch(JGE, ranges[m][0], true, build(i, m))

        return build(0, len(ranges))

    def finish(self):
        """The program, first instruction first: (code, jt, jf, k)."""
        program = []
        for place in reversed(range(len(self.code))):
            opcode, k, true, false = self.code[place]
            if opcode == JA:
                program.append((opcode, 0, 0, place - true - 1))
            elif true is None:
                program.append((opcode, 0, 0, k))
            else:
                program.append((opcode, place - true - 1, place - false - 1, k))
        return program


def merged(points, otherwise):
    """Ranges over the 32-bit words for {value: leaf}; all other values are `otherwise`."""
    ranges = []
    at = 0
    for value, leaf in sorted(points.items()) + [(WORD_END, None)]:
        if value > at:
            ranges.append((at, otherwise))
        ranges.append((value, leaf))
        at = value + 1
    ranges.pop()
    return [r for n, r in enumerate(ranges) if n == 0 or r[1] is not ranges[n - 1][1]]


def compile_rules(asm, rules):
    place = asm.ret(rules[-1].verdict)
    for rule in reversed(rules[:-1]):
        otherwise, place = place, asm.ret(rule.verdict)
        for c in reversed(rule.conditions):
            leaves = {True: place, False: otherwise}
            place = asm.tree(merged(dict.fromkeys(c.values, True), False), leaves.get)
            if c.mask != WORD_END - 1:
                place = asm.mask(c.mask, place)
            place = asm.load(OFFSET_ARGS + 8 * c.arg, place)
    return place


def compile_profile(profile):
    asm = Assembler()
    leaves = {}  # one object per verdict or rule list, so that "is" tells whether ranges merge
    intern = lambda t: leaves.setdefault(t if isinstance(t, int) else id(t), t)
    points = {nr: intern(t) for nr, t in profile.calls.items()}
    default, foreign = intern(profile.default), intern(RET_KILL_PROCESS)
    low = merged(points, default)  # its last range is the default, to the end of the words
    ranges = low + [(X32_BIT, foreign), (X32_END, default)]

    def place_of(target):
        return asm.ret(target) if isinstance(target, int) else compile_rules(asm, target)

    start = asm.load(OFFSET_NR, asm.tree(ranges, place_of))
    check = asm.branch(JEQ, AUDIT_ARCH["x86_64"], start, asm.ret(foreign))
    asm.load(OFFSET_ARCH, check)
    return asm.finish(), len(ranges)


def program_bytes(program):
    return b"".join(struct.pack("<HBBI", *i) for i in program)


def reachable(program, nr, arch):
    """Every value the program can return for this call, whatever the arguments are."""
    results, visited, todo = set(), set(), [(0, None)]
    while todo:
        pc, a = todo.pop()  # a: the accumulator, None when it depends on an argument
        if (pc, a) in visited:
            continue
        visited.add((pc, a))
        code, jt, jf, k = program[pc]
        if code == RET:
            results.add(k)
        elif code == LD:
            todo.append((pc + 1, {OFFSET_NR: nr, OFFSET_ARCH: arch}.get(k)))
        elif code == AND:
            todo.append((pc + 1, None if a is None else a & k))
        elif code == JA:
            todo.append((pc + 1 + k, a))
        else:
            taken = None if a is None else (a == k if code == JEQ else a >= k)
            todo += [(pc + 1 + jt, a)] if taken is not False else []
            todo += [(pc + 1 + jf, a)] if taken is not True else []
    return results


def verdict_text(results):
    def one(value):
        if value == RET_ALLOW:
            return (0, 0), "allow"
        if value == RET_KILL_PROCESS:
            return (2, 0), "kill"
        number = value & 0xFFFF
        return (1, number), "errno " + ERRNO_NAMES.get(number, str(number))

    texts = [text for _, text in sorted(one(v) for v in results)]
    return texts[0] if len(texts) == 1 else f"args({'|'.join(texts)})"


def golden(policy, profile, arch):
    program, _ = compile_profile(profile)
    if arch == "x86_64":
        names = policy.numbers
    else:
        names = header_numbers("unistd_32.h" if arch == "i386" else "unistd_x32.h")
        names |= {name: nr for name, nr in policy.later.items() if nr >= 424}  # the shared part
    end = {"x32": 548}.get(arch, LAST_KNOWN + 1)
    by_number = {nr: name for name, nr in names.items() if nr < end}
    bit = X32_BIT if arch == "x32" else 0

    lines, counts = [], dict.fromkeys(("allow", "args", "errno", "kill"), 0)
    for nr in range(DUMP_END):
        text = verdict_text(reachable(program, nr | bit, AUDIT_ARCH[arch]))
        name = by_number.get(nr, "-")
        if name != "-":
            counts[re.match(r"\w+", text)[0]] += 1
        elif lines and lines[-1][2:] == ["-", text] and lines[-1][1] == nr - 1:
            lines[-1][1] = nr
            continue
        lines.append([nr, nr, name, text])
    for first, last, name, text in lines:
        yield f"{arch}\t{first if first == last else f'{first}-{last}'}\t{name}\t{text}"
    for nr in (0x3FFFFFFF, 0x40000000, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF):
        text = verdict_text(reachable(program, nr, AUDIT_ARCH[arch]))
        yield f"{arch}\t{nr:#010x}\t-\t{text}"
    yield f"{arch}\ttotal\t{len(by_number)}\t" + " ".join(f"{k}={v}" for k, v in counts.items())


def c_name(name):
    return name.replace("-", "_")


def c_header(policy):
    yield "/* SPDX-License-Identifier: Apache-2.0 */"
    yield "/* Made by tools/seccomp-gen.py from src/native/seccomp.policy: do not edit. */"
    yield "/* Included by seccomp.c, behind <linux/filter.h> and struct seccomp_profile. */"
    profiles = [(p, compile_profile(p)[0]) for p in policy.profiles.values()]
    for profile, program in profiles:
        yield ""
        yield f"static const struct sock_filter seccomp_filter_{c_name(profile.name)}[] = {{"
        for code, jt, jf, k in program:
            yield f"\t{{ 0x{code:02x}, {jt}, {jf}, 0x{k:08x} }},"
        yield "};"
    yield ""
    yield "static const struct seccomp_profile seccomp_profiles[] = {"
    for profile, program in profiles:
        digest = hashlib.sha256(program_bytes(program)).hexdigest()
        yield "\t{"
        yield f"\t\t.name = \"{profile.name}\","
        yield f"\t\t.len = {len(program)},"
        yield f"\t\t.filter = seccomp_filter_{c_name(profile.name)},"
        yield f"\t\t.sha256 = \"{digest}\","
        yield "\t},"
    yield "};"


def stats(policy):
    for profile in policy.profiles.values():
        program, ranges = compile_profile(profile)
        targets = list(profile.calls.values())
        plain = sum(t == RET_ALLOW for t in targets)
        checked = sum(not isinstance(t, int) for t in targets)
        digest = hashlib.sha256(program_bytes(program)).hexdigest()
        yield (f"{profile.name}: {plain} allowed, {checked} argument-checked, {ranges} ranges, "
               f"{len(program)} instructions, sha256 {digest}")


def main():
    here = pathlib.Path(__file__).resolve().parent
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("policy", nargs="?", default=here.parent / "src/native/seccomp.policy")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("-o", metavar="HEADER", help="write the C header")
    what.add_argument("--golden", nargs=2, metavar=("PROFILE", "ARCH"), help="verdict per call")
    what.add_argument("--stats", action="store_true", help="sizes and counts")
    options = parser.parse_args()
    try:
        policy = Policy(options.policy)
        if options.o:
            pathlib.Path(options.o).write_text("\n".join(c_header(policy)) + "\n")
        elif options.stats:
            print(*stats(policy), sep="\n")
        else:
            name, arch = options.golden
            if name not in policy.profiles or arch not in AUDIT_ARCH:
                raise PolicyError(f"no such profile or architecture: {name} {arch}")
            print(*golden(policy, policy.profiles[name], arch), sep="\n")
    except PolicyError as e:
        sys.exit(f"seccomp-gen: {e}")


if __name__ == "__main__":
    main()
