"""The JSON Schema of the configuration: the names of all options, and the values that their tables in
docs/configuration.md allow.

The names come from the surface of the program. What a table says in words, such as "at least one", and what is required
when, are left to `fairgate check`.
"""

import re

# Sections whose fields are names that the operator chooses, or that belong to another format.
OPEN = {"policy", "aliases", "headers", "fields", "classes"}
ROW = re.compile(r"^\| `(?P<option>[a-z0-9_]+)` \| .* \| (?P<values>[^|]*) \| [^|]* \| (live|restart) \|$")
HEADING = re.compile(r"^##+ (?:`(?P<path>[^`]+)`|(?P<title>.*))$")
NULL = {"type": "null"}
TEXT = {"type": "string"}
# Kinds of values by the word that their cell begins with.
KINDS = {
    "duration": {"type": "string", "pattern": "^[0-9]+ *(ms|s|m|h)$"},
    "size": {"type": "string", "pattern": "^[0-9]+ *([KMGT]i?)?B$"},
    "path": TEXT,
    "name": TEXT,
    "text": TEXT,
    "address": {"type": "string", "pattern": ":[0-9]+$"},
    "http": TEXT,
    "https": TEXT,
    "decimal": {"type": ["number", "string"]},
    "boolean": {"type": "boolean"},
    "true": {"type": "boolean"},
    "mapping:": {"type": "object"},
}
WORDS = re.compile(r"`[^`]*`((, | or )`[^`]*`)*")
RANGE = re.compile(r"(?P<least>[0-9.]+) to (?P<most>[0-9.]+)(?P<more>.*)")


def schema(options, document):
    """Returns the schema of these options, whose values are in the tables of this document."""
    values = dict(rows_of(document))
    root = {"type": "object", "properties": {}, "additionalProperties": False}
    for line in options:
        node, parts = root, line.partition(" = ")[0].split(".")
        for place, part in enumerate(parts):
            child = node.setdefault("properties", {}).setdefault(part.removesuffix("[]"), {})
            if place == len(parts) - 1:
                child.setdefault("values", values.get(".".join(parts)))
            elif part.endswith("[]"):
                child = child.setdefault("items", {})
            node = child
    described = section(root, "")
    described["$schema"] = "http://json-schema.org/draft-07/schema#"
    described["title"] = "Configuration of Fairgate"
    return described


def rows_of(document):
    """Yields the path of each option with the cell of its values."""
    prefix = ""
    for line in document.splitlines():
        heading, row = HEADING.match(line), ROW.match(line)
        if heading:
            prefix = f"{heading['path']}." if heading["path"] else ""
        elif row:
            yield prefix + row["option"], row["values"]


def section(node, name):
    """Returns the schema of an option with what is inside it."""
    if name in OPEN:
        return {}
    known = typed(node.get("values") or "")
    fields = node.get("properties")
    if "items" in node:
        items = section(node["items"], "items")
        return {"type": ["array", "null"], "items": items}
    if fields is None:
        return known
    closed = {
        "type": "object",
        "properties": {field: section(child, field) for field, child in fields.items()},
        "additionalProperties": False,
    }
    if not name:
        return closed
    if name == "items":
        # A model, or another entry of a list, may be its name alone.
        return any_of([closed, TEXT])
    others = [] if node.get("values") is None else alternatives(node["values"])
    return any_of([closed, NULL, *others])


def alternatives(values):
    """Returns what a section may be instead: a word such as `auto`, a number, true or false, or text beside a secret."""
    if values.startswith("section"):
        return [{"type": ["boolean", "string"]}]
    if values.startswith("[secret]"):
        return []
    return [typed(values)]


def typed(values):
    """Returns the schema of the values in a cell; anything, where the cell is in words."""
    kinds = [kind for kind in [ranged(values), listed(values), named(values)] if kind]
    if not kinds:
        return {}
    return any_of([*kinds, NULL])


def ranged(values):
    """`1 to 100 requests`, with or without words beside the numbers."""
    found = RANGE.match(values)
    if not found or "without spaces" in values:
        return None
    words = [{"enum": quoted(found["more"])}] if quoted(found["more"]) else []
    if "." in found["least"] + found["most"] or "place" in found["more"]:
        number = {"type": ["number", "string"], "minimum": float(found["least"]), "maximum": float(found["most"])}
    else:
        number = {"type": "integer", "minimum": int(found["least"]), "maximum": int(found["most"])}
    return any_of([number, *words])


def listed(values):
    """`list of …`."""
    if not values.startswith("list"):
        return None
    words = quoted(values.removeprefix("list of "))
    is_closed = words and WORDS.fullmatch(values.removeprefix("list of "))
    return {"type": "array", **({"items": {"enum": words}} if is_closed else {})}


def named(values):
    """A kind such as `duration`, or a choice of words."""
    if values.endswith("without spaces"):
        return TEXT
    if WORDS.fullmatch(values):
        words = quoted(values)
        return {"enum": words} if all(is_word(word) for word in words) else TEXT
    return KINDS.get(re.split(r"[ ,;]", values)[0])


def is_word(word):
    """Returns whether a text in backticks is a value, and not a pattern such as `sqlite:PATH`."""
    return not isinstance(word, str) or re.fullmatch(r"[a-z0-9_]+", word) is not None


def quoted(text):
    """Returns the texts in backticks, as YAML reads them."""
    known = {"true": True, "false": False}
    words = [known.get(word, word) for word in re.findall(r"`([^`]*)`", text)]
    return [int(word) if isinstance(word, str) and word.isdigit() else word for word in words]


def any_of(kinds):
    return kinds[0] if len(kinds) == 1 else {"anyOf": kinds}
