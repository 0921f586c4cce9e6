#!/usr/bin/env python3
# Compares `winnow roles` with independent parsers, byte by byte: parsers.py WINNOW DOCUMENTS. Python's own json and csv are
# always there; the trees of tree-sitter need its packages (CONTRIBUTING.md), and are passed over without them.
from __future__ import annotations

import csv
import importlib
import io
import json
import subprocess
import sys
from pathlib import Path

SPACE = b" \t\r\n\f\v"


def spans_of(winnow: str, path: Path, form: str) -> list[dict]:
    output = subprocess.run([winnow, "roles", str(path), "--roles", form, "--json"], capture_output=True, check=True)
    return json.loads(output.stdout)["spans"]


def roles_of(spans: list[dict]) -> list[str]:
    roles: list[str] = []
    for span in spans:
        assert span["start"] == len(roles), "spans have gaps"
        roles += [span["role"]] * (span["end"] - span["start"])
    return roles


def leaves(value: object):
    """Keys and scalars in the order of the text."""
    stack = [("VALUE", value)]
    while stack:
        role, top = stack.pop()
        if isinstance(top, Pairs):
            stack += [entry for pair in reversed(top) for entry in (("VALUE", pair[1]), ("KEY", pair[0]))]
        elif isinstance(top, list):
            stack += [("VALUE", each) for each in reversed(top)]
        else:
            yield role, top


class Pairs(list):
    """An object's pairs, repeated keys included."""


def json_problem(text: bytes, spans: list[dict], is_lines: bool) -> str | None:
    documents = [line for line in text.splitlines() if line.strip()] if is_lines else [text]
    expected = [leaf for each in documents for leaf in leaves(json.loads(each, object_pairs_hook=Pairs))]
    found = []
    for span in spans:
        part = text[span["start"] : span["end"]]
        if span["role"] in ("KEY", "VALUE"):
            found.append((span["role"], json.loads(part)))
        elif not (span["role"] == "WS" and not part.strip(SPACE) or span["role"] == "DELIM" and not part.strip(b"{}[]:,")):
            return f"{span} is {part!r}"
    return None if found == expected else f"{len(found)} keys and values, not Python's {len(expected)}"


def csv_problem(text: bytes, spans: list[dict]) -> str | None:
    expected = [row for row in csv.reader(io.StringIO(text.decode(), newline="")) if row]
    rows: list[list[str]] = [[""]]
    is_header = True
    for span in spans:
        part = text[span["start"] : span["end"]].decode()
        if span["role"] == "WS":
            rows.append([""])
        elif span["role"] == "DELIM":
            rows[-1] += [""] * part.count(",")
        else:
            rows[-1][-1] += part.replace('""', '"') if span["in_string"] else part
            is_header = len(rows) == 1
            if span["role"] != ("HEADER" if is_header else "VALUE"):
                return f"{span} is {part!r}"
    return None if [row for row in rows if row != [""]] == expected else "other cells than Python's"


class Tree:
    """Roles that a tree gives; bytes outside its tokens are white space, or nothing the tree explains."""

    def __init__(self, text: bytes):
        self.text = text
        self.roles: list[str | None] = [None] * len(text)

    def fill(self, node, role: str, has_words: bool = False) -> None:
        for i in range(node.start_byte, node.end_byte):
            self.roles[i] = "WS" if has_words and self.text[i] in SPACE else role

    def result(self) -> list[str | None]:
        return ["WS" if role is None and byte in SPACE else role for role, byte in zip(self.roles, self.text)]


def root_of(language, text: bytes):
    import tree_sitter

    return tree_sitter.Parser(tree_sitter.Language(language)).parse(text).root_node


def json_tree(module, text: bytes) -> list[str | None]:
    tree = Tree(text)
    stack = [(root_of(module.language(), text), False)]
    while stack:
        node, is_key = stack.pop()
        if node.type == "string":
            tree.fill(node, "KEY" if is_key else "VALUE")
        elif node.type in ("number", "true", "false", "null"):
            tree.fill(node, "VALUE")
        elif node.type in tuple("{}[]:,"):
            tree.fill(node, "DELIM")
        else:
            stack += [(child, node.child_by_field_name("key") == child) for child in node.children]
    return tree.result()


MARKUP = ("comment", "Comment", "doctype", "doctypedecl", "XMLDecl", "PI", "StyleSheetPI", "XmlModelPI",
          "CDStart", "]]>", "<", ">", "/>", "</", "=", '"', "'")  # fmt: skip
TEXT = ("CharData", "CData", "text", "raw_text", "entity", "EntityRef", "CharRef", "attribute_value")


def xml_tree(module, text: bytes) -> list[str | None]:
    tree = Tree(text)
    is_xml = hasattr(module, "language_xml")
    stack = [root_of(module.language_xml() if is_xml else module.language(), text)]
    while stack:
        node = stack.pop()
        if node.type in MARKUP:
            tree.fill(node, "DELIM")
        elif node.type in ("Name", "tag_name", "attribute_name"):
            tree.fill(node, "KEY")
        elif node.type in TEXT:
            tree.fill(node, "VALUE", has_words=True)
        elif node.type in ("AttValue", "quoted_attribute_value"):
            tree.fill(node, "VALUE", has_words=True)
            tree.roles[node.start_byte] = tree.roles[node.end_byte - 1] = "DELIM"
        else:
            stack += node.children
    return tree.result()


def yaml_tree(module, text: bytes) -> list[str | None]:
    tree = Tree(text)
    stack = [(root_of(module.language(), text), "VALUE")]
    while stack:
        node, role = stack.pop()
        kind = node.type
        if kind == "comment":
            tree.fill(node, "PROSE")
        elif kind in ("plain_scalar", "double_quote_scalar", "single_quote_scalar", "alias"):
            tree.fill(node, role)
        elif kind == "block_scalar":
            at = node.start_byte
            for i, line in enumerate(text[node.start_byte : node.end_byte].splitlines(True)):
                begin = at + len(line) - len(line.lstrip())
                for byte in range(begin, begin + len(line.strip())):
                    tree.roles[byte] = "VALUE" if i else "DELIM"
                at += len(line)
        elif kind in ("anchor", "tag", "---", "...", "-", "?", ":", ",", "[", "]", "{", "}", "yaml_directive"):
            tree.fill(node, "DELIM")
        else:
            is_pair = kind in ("block_mapping_pair", "flow_pair")
            is_key = role == "KEY" and kind in ("flow_node", "block_node", "plain_scalar")
            for child in node.children:
                of_pair = is_pair and node.child_by_field_name("key") == child
                stack.append((child, "KEY" if of_pair or is_key else "VALUE"))
    return tree.result()


def toml_tree(module, text: bytes) -> list[str | None]:
    tree = Tree(text)
    stack = [(root_of(module.language(), text), "KEY")]
    while stack:
        node, role = stack.pop()
        if node.type == "comment":
            tree.fill(node, "PROSE")
        elif node.type in ("bare_key", "quoted_key", "dotted_key"):
            tree.fill(node, role)
        elif node.type in ("[", "]", "[[", "]]", "{", "}", ",", "="):
            tree.fill(node, "DELIM")
        elif node.type in ("string", "integer", "float", "boolean", "offset_date_time", "local_date_time", "local_date"):
            tree.fill(node, "VALUE")
        else:
            is_table = node.type in ("table", "table_array_element")
            stack += [(child, "HEADER" if is_table and child.type.endswith("_key") else "KEY") for child in node.children]
    return tree.result()


def markdown_tree(module, text: bytes) -> list[str | None]:
    """Blocks only. None: where the tree has another language inside, or does not tell text from white space."""
    tree = Tree(text)
    stack = [root_of(module.language(), text)]
    while stack:
        node = stack.pop()
        kind = node.type
        if kind in ("atx_heading", "setext_heading"):
            line = text[node.start_byte : node.end_byte]
            for i, byte in enumerate(line):
                tree.roles[node.start_byte + i] = "HEADER" if byte not in b"\r\n" else "WS"
            for i in range(len(line.rstrip()), len(line)):
                tree.roles[node.start_byte + i] = "WS"
            for child in node.children:
                if child.type in ("setext_h1_underline", "setext_h2_underline"):
                    tree.fill(child, "DELIM")
        elif kind in ("fenced_code_block_delimiter", "info_string", "|", "pipe_table_delimiter_row"):
            tree.fill(node, "DELIM")
        elif kind == "pipe_table_cell":
            is_header = node.parent.type == "pipe_table_header"
            cell = text[node.start_byte : node.end_byte]
            begin = node.start_byte + len(cell) - len(cell.lstrip())
            for i in range(begin, begin + len(cell.strip())):
                tree.roles[i] = "HEADER" if is_header else "VALUE"
        else:
            stack += node.children
    return tree.roles


# The module of a tree, what reads it, and the least share of bytes that agree.
TREES = {
    "json": ("tree_sitter_json", json_tree, 1.0),
    "jsonl": ("tree_sitter_json", json_tree, 1.0),
    "xml": ("tree_sitter_xml", xml_tree, 0.995),
    "html": ("tree_sitter_html", xml_tree, 0.995),
    "yaml": ("tree_sitter_yaml", yaml_tree, 0.995),
    "toml": ("tree_sitter_toml", toml_tree, 0.995),
    "markdown": ("tree_sitter_markdown", markdown_tree, 0.995),
}


def different(form: str, ours: list[str], tree: list[str | None], text: bytes) -> list[int]:
    if form == "markdown":
        return [i for i, role in enumerate(tree) if role is not None and role != ours[i]]
    return [i for i, role in enumerate(tree) if role != ours[i]]


def main() -> int:
    winnow, documents = sys.argv[1], Path(sys.argv[2])
    n_failed = 0
    missing: set[str] = set()
    for path in sorted(p for p in documents.rglob("*") if p.is_file()):
        form = path.parent.name
        if form == "chat":
            form = path.suffix[1:]
        text = path.read_bytes()
        if form not in TREES and form != "csv":
            continue
        spans = spans_of(winnow, path, form)
        ours = roles_of(spans)
        problem = None
        if len(ours) != len(text):
            problem = f"{len(ours)} bytes are labelled"
        elif form in ("json", "jsonl"):
            problem = json_problem(text, spans, form == "jsonl")
        elif form == "csv":
            problem = csv_problem(text, spans)
        line = f"{path.relative_to(documents)} {len(text)}"
        if form in TREES and problem is None:
            name, read, least = TREES[form]
            try:
                module = importlib.import_module(name)
                importlib.import_module("tree_sitter")
            except ImportError:
                missing.add(name)
            else:
                wrong = different(form, ours, tree := read(module, text), text)
                share = 1 - len(wrong) / max(1, len(text))
                line += f" {len(wrong)} {100 * share:.4f} %"
                if wrong and "-v" in sys.argv:
                    starts = [i for k, i in enumerate(wrong) if k == 0 or wrong[k - 1] != i - 1]
                    line += "".join(f"\n  {i} {tree[i]} {ours[i]} {text[max(0, i - 30) : i + 30]!r}" for i in starts[:8])
                problem = None if share >= least else "too many differ"
        print(line if problem is None else f"{line} FAILED: {problem}")
        n_failed += problem is not None
    if missing:
        print("not compared with", ", ".join(sorted(missing)))
    return 1 if n_failed else 0


if __name__ == "__main__":
    sys.exit(main())
