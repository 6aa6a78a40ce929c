#!/usr/bin/env python3
"""Our TOML reader against Python's tomllib (3.11 or later).

compare_toml.py fixtures                          writes fixtures/toml_cases.txt: documents with tomllib's verdicts and values
compare_toml.py compare PROGRAM [SEED] [COUNT]    compares COUNT seeded random documents (PROGRAM is test_toml_verdicts)

Where the two differ on purpose: integers outside 64 bits and nesting beyond 100 are refused by ours, a byte order mark is skipped.
"""
import math
import os
import random
import struct
import subprocess
import sys
import tomllib
import tomllib._parser as parser


class Date:
    def __init__(self, text):
        self.text = text


# tomllib checks a date by making one; the text as written is what we keep.
make_datetime, make_time = parser.match_to_datetime, parser.match_to_localtime


def keep_datetime(match):
    make_datetime(match)
    return Date(match.group())


def keep_time(match):
    make_time(match)
    return Date(match.group())


parser.match_to_datetime, parser.match_to_localtime = keep_datetime, keep_time


class OutOfRange(Exception):
    pass


def dump_string(s):
    return '"' + "".join("\\" + c if c in '"\\' else "\\u%04x" % ord(c) if c < " " else c for c in s) + '"'


def dump(v):
    if isinstance(v, bool):
        return "true" if v else "false"
    if isinstance(v, int):
        if not -(2**63) <= v < 2**63:
            raise OutOfRange
        return '{"i":"%d"}' % v
    if isinstance(v, float):
        return '{"f":"%s"}' % ("nan" if math.isnan(v) else struct.pack(">d", v).hex())
    if isinstance(v, str):
        return dump_string(v)
    if isinstance(v, Date):
        return '{"d":"%s"}' % v.text
    if isinstance(v, list):
        return "[" + ",".join(map(dump, v)) + "]"
    return "{" + ",".join(dump_string(k) + ":" + dump(v[k]) for k in sorted(v, key=lambda k: k.encode())) + "}"


def verdict(document):
    """The dump, or None where the document is refused."""
    try:
        return dump(tomllib.loads(document.decode()))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, OutOfRange, ValueError):
        return None


def frame(document, dumped):
    text = b"" if dumped is None else dumped.encode()
    return b"case %d %d\n%s\n%s\n" % (len(document), -1 if dumped is None else len(text), document, text)


HAND = r'''
a = 1
###
# only a comment
###
a = "x" # behind a value
###
s = "b\b t\t n\n f\f r\r q\" s\\ u\u00e9 U\U0001F600"
###
s = 'C:\no\escape "quotes"'
###
s = """
first newline is dropped
"quotes" ""two"" and \
     continued"""
###
s = """four quotes at the end""""
###
s = """five quotes at the end"""""
###
s = """six quotes at the end""""""
###
s = \'\'\'
raw \n 'one' \'\'two\'\'
end\'\'\'
###
s = \'\'\'five\'\'\'\'\'
###
s = """\

   """
###
s = """a \   
   b"""
###
s = """a \ b"""
###
s = "bad \x41"
###
s = "\ud800"
###
s = "\U00110000"
###
s = "\u00e"
###
s = "not closed
###
s = 'not closed
###
s = """not closed
###
s = "tab	is fine"
###
i = [0, +0, -0, 42, +17, -17, 1_000, 5_349_221, 1_2_3_4_5]
###
i = [0xDEADBEEF, 0xdead_beef, 0o01234567, 0o755, 0b11010110, 0x0, 0b0]
###
i = 9223372036854775807
j = -9223372036854775808
###
i = 9223372036854775808
###
i = 0xffffffffffffffff
###
i = 01
###
i = +0x1
###
i = 1__0
###
i = _1
###
i = 1_
###
i = 0x_1
###
i = 0b2
###
f = [1.0, 3.1415, -0.01, 5e+22, 1e06, -2E-2, 6.626e-34, 224_617.445_991_228, 0.0, -0.0, +0.0, 1e400, 4.9e-324, 0e0]
###
f = [inf, +inf, -inf, nan, +nan, -nan]
###
f = .7
###
f = 7.
###
f = 3.e+20
###
f = 1._0
###
f = 1_.0
###
f = 03.14
###
f = 1e_1
###
f = 1e1.5
###
f = Inf
###
b = [true, false]
###
b = True
###
b = truefalse
###
d = [1979-05-27T07:32:00Z, 1979-05-27T00:32:00-07:00, 1979-05-27T00:32:00.999999-07:00, 1979-05-27 07:32:00Z, 1979-05-27t07:32:00z]
###
d = [1979-05-27T07:32:00, 1979-05-27T00:32:00.5, 1979-05-27, 07:32:00, 00:32:00.999999, 1979-05-27 07:32:00]
###
d = 2000-02-29
###
d = 1900-02-29
###
d = 2021-04-31
###
d = 2021-13-01
###
d = 2021-00-01
###
d = 1979-05-27T24:00:00
###
d = 1979-05-27T07:60:00
###
d = 1979-05-27T07:32:60
###
d = 1979-05-27T07:32
###
d = 1979-05-27T07:32:00+24:00
###
d = 1979-05-27T07:32:00.
###
d = 1979-5-27
###
d = 07:32
###
d = 07:32:00Z
###
d = 1979-05-27 
###
d = 1979-05-27T
###
a = []
###
a = [ ]
###
a = [1, 2, 3,]
###
a = [
  1, # one
  # between

  "two",
  [3.0, []], {x = 1},
]
###
a = [,]
###
a = [1,,2]
###
a = [1 2]
###
a = [1
###
a = [1, 2]]
###
t = {}
###
t = { }
###
t = {a = 1, b.c = 2, b.d = 3, "q r" = {s = []}}
###
t = {a = 1,}
###
t = {,}
###
t = {a = 1
}
###
t = {a = 1, a = 2}
###
t = {a = {b = 1}, a.c = 2}
###
t = {a.b = 1, a = 2}
###
t = {a.b = 1, a.b.c = 2}
###
t = {a = [
  1], b = """
x"""}
###
t = {a = 1 b = 2}
###
t = {a}
###
bare_key-1 = 1
1234 = 2
"quoted key" = 3
'lit \ key' = 4
"" = 5
'' = 6
###
"" = 5
###
"a\u0000b" = "c\u0000d"
###
"""a""" = 1
###
= 1
###
a
###
a =
###
a = # nothing
###
a b = 1
###
a = 1 b = 2
###
a = 1
a = 2
###
a = 1
"a" = 2
###
a.b.c = 1
a.b.d = 2
a . "e f" . g = 3
3.14 = "pi"
###
a.b = 1
a.b.c = 2
###
a.b.c = 1
a.b = 2
###
a = {}
a.b = 1
###
a = []
a.b = 1
###
a..b = 1
###
.a = 1
###
a. = 1
###
[a]
x = 1
[b.c]
y = 2
[ d . "e.f" . 'g' ]
z = 3
###
[a.b.c]
x = 1
[a]
y = 2
###
[a]
[a]
###
[a]
x = 1
[a.x]
###
[a]
[a.b]
[a]
###
[a.b]
x = 1
[a]
b.y = 2
###
[a.b.c]
x = 1
[a]
b.y = 2
###
[a.b.c]
z = 9
[a]
b.c.t = 1
###
[a.b.c.d]
z = 9
[a]
b.c.d.k.t = 1
###
a.b = 1
[a]
###
a.b = 1
[a.c]
x = 2
###
[f]
a.c = 1
a.t.s = true
[f.a]
###
[f]
a.c = 1
a.t.s = true
[f.a.t]
###
[f]
a.c = 1
[f.a.x]
y = 1
###
[f]
a.c = 1
[g]
[f.b]
[f.a.z]
w = 1
###
a = {b = 1}
[a]
###
a = {b = {}}
[a.b]
###
a = {b = {}}
[a.b.c]
###
a = {b = {}}
[[a.c]]
###
a = []
[[a]]
###
a = [{}]
[a.b]
###
a = [1]
[a.b]
###
[[p]]
n = 1
[[p]]
[[p]]
n = 2
c = "x"
###
[[f]]
n = "apple"
[f.p]
c = "red"
[[f.v]]
n = "1"
[[f.v]]
n = "2"
[[f]]
n = "banana"
[[f.v]]
n = "3"
[f.p]
###
[[f]]
[f.p]
[f.p]
###
[f.p]
x = 1
[[f]]
###
[f]
[[f]]
###
[[f]]
[f]
###
[[f.v]]
[f]
v.x = 1
###
[[f.v]]
[f]
w = 1
###
[[a.b]]
x = 1
[a.b.c]
y = 1
[[a.b]]
[a.b.c]
y = 2
###
[]
###
[[]]
###
[a
###
[a]]
###
[[a]
###
[ [a]]
###
[[a] ]
###
[a] b = 1
###
[a] # comment
###
[a.]
###
[.a]
###
[a..b]
###
["a"."b"]
###
[a b]
###
[a
]
###
a = "é" # ü
"ключ" = "值"
###
a = '''


def hand_documents():
    documents = [d.replace("\\'", "'").encode() for d in HAND.strip("\n").split("\n###\n")]
    documents[-1] = b"a ="
    documents += [
        b"",
        b"\n\n",
        b"a = 1\r\nb = 2\r\n",
        b"a = 1\rb = 2",
        b'a = """x\r\ny\r\n"""\r\n',
        b"a = '''\r\nx\r\n'''",
        b'a = """x\ry"""',
        b'a = """x \\\r\n  y"""',
        b"a = '\xc3\xa9'",
        b"a = '\xff'",
        b"a = '\xc0\x80'",
        b"a = '\xed\xa0\x80'",
        b"a = '\xf4\x90\x80\x80'",
        b"a = '\xf0\x9f\x98'",
        b"# \xe2\x82",
        b"a = 1 # \x01",
        b"a = 1 # tab\there",
        b"a = 1 # \x7f",
        b"a = '\x00'",
        b"a = '\x1f'",
        b'a = "\x7f"',
        b"\x00",
        b"a\x00 = 1",
        b"a = 1\x0b",
        b"a = 1\x0c\n",
        b"a = [1,\x0b2]",
        b"a = \xc2\xa01",
        b"\xc3\xa9 = 1",
        b"a = " + b"[" * 90 + b"]" * 90,
        b"a = " + b"{a=" * 90 + b"1" + b"}" * 90,
        b".".join([b"k"] * 60) + b" = 1",
        b"a = " + b"1" * 19,
        b"a = " + b"1" * 20,
        b"a = 0." + b"1234567890" * 40 + b"e-7",
        b"".join(b"k%d = %d\n" % (i, i) for i in range(300)),
    ]
    return documents


# ---- seeded random documents ----
KEYS = ["a", "b", "c", "d", "a-b", "1", '"q"', "'l'", '"x.y"', '"\\u00e9"', '""']
INTS = ["0", "-1", "+12", "1_000", "0x1F", "0o17", "0b101", "9223372036854775807", "9223372036854775808", "00", "1__2"]
FLOATS = ["1.5", "-0.0", "1e5", "6.02_2e+2_3", "inf", "-nan", "1.", ".5", "1e", "3e-400", "0.1", "123456.789e-10"]
DATES = ["1979-05-27", "07:32:00", "1979-05-27T07:32:00Z", "1979-05-27 07:32:00.123456-08:00", "2023-02-29", "24:00:00"]
STRINGS = ['""', "''", '"a\\tb"', "'c:\\d'", '"""x\ny"""', "'''\nz'''", '"\\u0041"', '"\\q"', '"""a\\\n  b"""', '"é"', '"\\\\"']
TOKENS = ["[", "]", "[[", "]]", "{", "}", ",", "=", ".", '"', "'", '"""', "'''", "#", "\n", "\r\n", " ", "\t", "\\", "true",
          "false", "_", "-", "+", ":", "e", "T", "\\u", "\x00", "\x7f", "\r", "é", "[a]\n", "[[a]]\n", "a.b = 1\n", "a = {}\n"]


class Maker:
    def __init__(self, rng):
        self.rng = rng

    def key(self):
        r = self.rng
        dot = r.choice([".", " . ", "."])
        return dot.join(r.choice(KEYS[:4] if r.random() < 0.8 else KEYS) for _ in range(r.choice([1, 1, 1, 2, 2, 3])))

    def value(self, depth=0):
        r = self.rng
        kind = r.random()
        if depth < 3 and kind < 0.12:
            sep = r.choice([", ", ",", ",\n ", " , # c\n"])
            end = r.choice(["", "", ",", "\n"])
            return "[" + sep.join(self.value(depth + 1) for _ in range(r.randrange(4))) + end + "]"
        if depth < 3 and kind < 0.24:
            pairs = (self.key() + r.choice(["=", " = "]) + self.value(depth + 1) for _ in range(r.randrange(4)))
            return "{" + r.choice([", ", ","]).join(pairs) + "}"
        return r.choice(r.choice([INTS, FLOATS, DATES, STRINGS, ["true", "false"]]))

    def line(self):
        r = self.rng
        kind = r.random()
        if kind < 0.2:
            return "[" + self.key() + "]"
        if kind < 0.32:
            return "[[" + self.key() + "]]"
        if kind < 0.36:
            return r.choice(["", "  ", "# comment", "\t# é"])
        return r.choice(["", "  "]) + self.key() + r.choice(["=", " = "]) + self.value() + r.choice(["", " # c", " "])

    def mutate(self, text):
        r = self.rng
        for _ in range(r.choice([1, 1, 2, 3])):
            at = r.randrange(len(text) + 1)
            kind = r.random()
            if kind < 0.5:
                text = text[:at] + r.choice(TOKENS) + text[at:]
            elif kind < 0.75:
                text = text[:at] + text[at + r.choice([1, 1, 2, 5]):]
            else:
                other = r.randrange(len(text) + 1)
                text = text[:at] + text[other:other + r.randrange(8)] + text[at:]
        return text

    def document(self):
        r = self.rng
        text = r.choice(["\n", "\n", "\r\n"]).join(self.line() for _ in range(r.randrange(1, 7)))
        if r.random() < 0.4:
            text = self.mutate(text)
        data = text.encode()
        if r.random() < 0.03 and data:
            at = r.randrange(len(data))
            data = data[:at] + bytes([r.randrange(256)]) + data[at + 1:]
        return data


def random_documents(seed, count):
    rng = random.Random(seed)
    maker = Maker(rng)
    return [maker.document() for _ in range(count)]


def write_fixtures():
    documents = hand_documents() + random_documents(20, 600)
    cases = [(d, verdict(d)) for d in dict.fromkeys(documents)]
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "fixtures", "toml_cases.txt")
    with open(path, "wb") as f:
        f.write(b"".join(frame(d, v) for d, v in cases))
    print(f"{path}: {len(cases)} cases, {sum(v is None for _, v in cases)} of them refused")


def compare(program, seed, count):
    documents = hand_documents() + random_documents(seed, count)
    answer = subprocess.run([program], input=b"".join(frame(d, None) for d in documents), stdout=subprocess.PIPE, check=True)
    lines = answer.stdout.split(b"\n")[:-1]
    # A message may quote a document's own characters, but never a newline.
    assert len(lines) == len(documents), f"{len(lines)} answers for {len(documents)} documents"
    wrong = accepted = 0
    for document, line in zip(documents, lines):
        wanted = verdict(document)
        found = None if line.startswith(b"error ") else line.decode()
        accepted += wanted is not None
        if wanted != found:
            wrong += 1
            if wrong <= 10:
                print(f"{document!r}\n  tomllib {wanted}\n  ours    {line.decode(errors='replace')}")
    print(f"seed {seed}: {len(documents)} documents, {accepted} valid, {wrong} differ")
    return wrong != 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["fixtures"]:
        write_fixtures()
    elif sys.argv[1:2] == ["compare"] and len(sys.argv) > 2:
        sys.exit(compare(sys.argv[2], *[int(x) for x in (sys.argv[3:5] + ["1", "20000"][len(sys.argv[3:5]):])]))
    else:
        sys.exit(__doc__)
