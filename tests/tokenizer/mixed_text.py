"""A seeded generator of awkward text: scripts, emoji, numbers, contractions, white space, control characters, invalid UTF-8."""
import random
import sys

SCRIPTS = [(0x41, 0x5A), (0x61, 0x7A), (0xC0, 0x17F), (0x370, 0x3FF), (0x400, 0x4FF), (0x530, 0x58F), (0x590, 0x5FF),
           (0x600, 0x6FF), (0x900, 0x97F), (0xE00, 0xE7F), (0x1100, 0x11FF), (0x1E00, 0x1EFF), (0x3040, 0x309F),
           (0x30A0, 0x30FF), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0xFF00, 0xFFEF), (0x10400, 0x1044F), (0x1D400, 0x1D7FF),
           (0x20000, 0x2A6DF), (0x1F00, 0x1FFF), (0xA640, 0xA69F), (0x10A0, 0x10FF), (0xFB00, 0xFB4F)]
EMOJI = ["😀", "🦙", "👩‍🚀", "👨‍👩‍👧‍👦", "🇩🇪", "🇯🇵", "👍🏽", "❤️", "☃", "✅", "😶‍🌫️", "🏴‍☠️", "1️⃣", "©️", "🫠"]
SPACES = [" ", " ", " ", "  ", "   ", "\t", "\n", "\n\n", "\r\n", "\r", " \n", "\n ", "\n  ", "\u00a0", "\u180e", "\u2028", "\u2029",
          "\u3000", "\u0085", "\u200b", "\ufeff", "\u2003", "\v", "\f", "\u1680", "\u202f", "\u200d", "  \n\t\n ", "\u0120", "\u2581"]
MARKS = [0x300, 0x301, 0x302, 0x303, 0x308, 0x30A, 0x323, 0x327, 0x328, 0x331, 0x345, 0x5B0, 0x64B, 0x653, 0x3099, 0x309A, 0x1161,
         0x11A8, 0x1DC0, 0x20D0, 0x302A, 0xFE0F, 0xFE20, 0x334]
SUFFIXES = ["'s", "'t", "'re", "'ve", "'m", "'ll", "'d", "'S", "'T", "'RE", "'Ve", "'LL", "'\u017f", "’s", "'x", "''", "'sa", "'r", "'l", "'v"]
SPECIALS = ["<|endoftext|>", "<|begin_of_text|>", "<|end_of_text|>", "<|im_start|>", "<s>", "</s>", "<unk>", "<think>", "</think>",
            "<｜begin▁of▁sentence｜>", "<｜User｜>", "<|eot_id|>", "<|endof", "<|", "<0x41>", "<pad>", "<tool_call>", "<|fim_prefix|>"]
BAD = [b"\xff", b"\xc0\x80", b"\xe2\x82", b"\xf0\x9f\x98", b"\xed\xa0\x80", b"\x80", b"\xbf\xbf", b"\xf5\x80\x80\x80", b"\xe0\x80\x80",
       b"\xf4\x90\x80\x80", b"\xc3", b"\xf0\x80\x80\x80", b"\xe2(\xa1", b"\xf0(\x8c\xbc", b"\xfe\xfe\xff\xff"]


def one(r):
    """One small piece, as bytes."""
    kind = r.randrange(20)
    if kind < 6:
        low, high = r.choice(SCRIPTS)
        word = "".join(chr(r.randint(low, high)) for _ in range(r.randint(1, 12)))
        if r.random() < 0.2:
            word = word[:1].upper() + word[1:]
        return (r.choice(["", " "]) + word).encode()
    if kind == 6:
        return "".join(chr(r.randint(0x61, 0x7A)) + "".join(chr(r.choice(MARKS)) for _ in range(r.randint(0, 3)))
                       for _ in range(r.randint(1, 5))).encode()
    if kind == 7:
        return r.choice(EMOJI).encode()
    if kind == 8:
        return (r.choice(["", " ", "-", "$"]) + str(r.randrange(10 ** r.randint(1, 12))) + r.choice(["", ".5", ",000", "th", "²", "½", "Ⅷ", "٣٤", "५", "%"])).encode()
    if kind < 12:
        return "".join(r.choice(SPACES) for _ in range(r.randint(1, 4))).encode()
    if kind == 12:
        return (r.choice(["it", "You", "we", "DON", "ça", "", "x1"]) + r.choice(SUFFIXES)).encode()
    if kind == 13:
        return "".join(r.choice("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~¡¿«»—…、。！？") for _ in range(r.randint(1, 8))).encode()
    if kind == 14:
        return bytes(r.randrange(32) for _ in range(r.randint(1, 3)))
    if kind == 15:
        return r.choice(BAD)
    if kind == 16:
        return r.choice(SPECIALS).encode()
    if kind == 17:
        c = r.randrange(0x110000)
        return chr(c).encode() if not 0xD800 <= c < 0xE000 else b""
    if kind == 18:
        c = r.randrange(0x3100)
        return chr(c).encode() * r.randint(1, 3)
    return (r.choice("aeA \n0=-ä中") * r.randint(1, 40)).encode()


def document(seed, size):
    """About `size` bytes of awkward text."""
    r = random.Random(seed)
    parts, length = [], 0
    while length < size:
        part = one(r)
        parts.append(part)
        length += len(part)
    return b"".join(parts)


if __name__ == "__main__":
    sys.stdout.buffer.write(document(int(sys.argv[1]), int(sys.argv[2])))
