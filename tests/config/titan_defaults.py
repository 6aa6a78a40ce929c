#!/usr/bin/env python3
"""Writes fixtures/titan_defaults.txt: every key of torchtitan's JobConfig with its type and default, one a line.

usage: titan_defaults.py PATH/torchtitan/config/job_config.py      (v0.2.2; read as a syntax tree, nothing is imported)
"""
import ast
import os
import sys


def toml(value):
    if value is None:
        return "unset"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return '"' + value + '"'
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    if isinstance(value, float):
        return "float %r" % value
    return repr(value)


def default_of(node):
    if isinstance(node, ast.Call) and node.func.id == "field":
        factory = node.keywords[0].value
        if isinstance(factory, ast.Lambda):
            return ast.literal_eval(factory.body)
        return [] if factory.id == "list" else factory.id  # the name of a nested class
    return ast.literal_eval(node)


def walk(classes, name, prefix, out):
    for item in classes[name].body:
        if not isinstance(item, ast.AnnAssign):
            continue
        key = prefix + item.target.id
        type_text = ast.unparse(item.annotation)
        if type_text in classes:
            walk(classes, type_text, key + ".", out)
        else:
            out.append("%s\t%s\t%s" % (key, type_text, toml(default_of(item.value))))


def main(path):
    classes = {c.name: c for c in ast.parse(open(path).read()).body if isinstance(c, ast.ClassDef)}
    out = []
    walk(classes, "JobConfig", "", out)
    to = os.path.join(os.path.dirname(os.path.abspath(__file__)), "fixtures", "titan_defaults.txt")
    with open(to, "w") as f:
        f.write("\n".join(out) + "\n")
    print("%s: %d keys" % (to, len(out)))


if __name__ == "__main__":
    main(sys.argv[1]) if len(sys.argv) == 2 else sys.exit(__doc__)
