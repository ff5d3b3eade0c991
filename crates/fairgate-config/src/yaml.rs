//! A YAML text as a tree whose nodes know their place. Scalars stay text: what a number or a duration is, its field
//! decides.

use std::collections::BTreeMap;

use granit_parser::{Event, Parser, ScalarStyle, Span};

use crate::error::Place;

/// A value.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) place: Place,
    pub(crate) value: Value,
}

#[derive(Clone, Debug)]
pub(crate) enum Value {
    /// Text; `quoted` where it cannot be meant as a number, a boolean or nothing.
    Scalar {
        text: String,
        quoted: bool,
    },
    List(Vec<Node>),
    Map(Vec<Entry>),
}

/// A field of a mapping.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) place: Place,
    pub(crate) node: Node,
}

/// Something in a text that cannot be.
#[derive(Debug)]
pub(crate) struct Flaw {
    pub(crate) place: Place,
    pub(crate) field: String,
    pub(crate) message: String,
}

/// How many values a configuration may have, what aliases repeat counted each time.
const NODES_MAX: usize = 100_000;

/// How deep values may lie in each other. A policy of 64 nodes needs half of it.
const DEPTH_MAX: usize = 255;

/// Reads a text. What is no YAML ends it; duplicate fields and the like are noted in `flaws`, and reading goes on.
/// `empty` is what is said of a text with nothing in it.
pub(crate) fn parse(text: &str, empty: &str, flaws: &mut Vec<Flaw>) -> Result<Node, Flaw> {
    parse_within(NODES_MAX, text, empty, flaws)
}

/// The same for a text that may have so many values.
pub(crate) fn parse_within(
    nodes_max: usize,
    text: &str,
    empty: &str,
    flaws: &mut Vec<Flaw>,
) -> Result<Node, Flaw> {
    let (open, anchors) = (Vec::new(), BTreeMap::new());
    let mut builder = Builder { open, root: None, anchors, nodes: 0, nodes_max };
    let mut documents = 0;
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|error| Flaw {
            place: Place { line: error.marker().line().max(1), column: error.marker().col() + 1 },
            field: String::new(),
            message: format!("is not YAML: {}", error.info()),
        })?;
        if matches!(event, Event::DocumentStart(..)) {
            documents += 1;
            if documents > 1 {
                return Err(whole(place(&span), "a second document starts here; one is read"));
            }
        }
        builder.take(event, &span, flaws)?;
    }
    builder.root.ok_or_else(|| whole(Place::TOP, empty))
}

fn whole(place: Place, message: impl Into<String>) -> Flaw {
    Flaw { place, field: String::new(), message: message.into() }
}

fn place(span: &Span) -> Place {
    Place { line: span.start.line().max(1), column: span.start.col() + 1 }
}

/// The tree as far as it has been read.
struct Builder {
    /// The lists and mappings that are still open, outermost first.
    open: Vec<Open>,
    root: Option<Node>,
    anchors: BTreeMap<usize, Node>,
    nodes: usize,
    nodes_max: usize,
}

struct Open {
    place: Place,
    anchor: usize,
    inside: Inside,
}

enum Inside {
    List(Vec<Node>),
    /// The entries, and the name that waits for its value.
    Map(Vec<Entry>, Option<(String, Place)>),
}

impl Builder {
    fn take(&mut self, event: Event<'_>, span: &Span, flaws: &mut Vec<Flaw>) -> Result<(), Flaw> {
        let place = place(span);
        if event.tag().is_some() {
            return Err(whole(place, "has a tag (!…): tags mean nothing here, remove it"));
        }
        match event {
            Event::Scalar(text, style, anchor, _) => {
                let quoted = style != ScalarStyle::Plain;
                let value = Value::Scalar { text: text.into_owned(), quoted };
                self.close(Node { place, value }, anchor, flaws)
            }
            Event::SequenceStart(_, anchor, _) => {
                self.open(place, anchor, Inside::List(Vec::new()))
            }
            Event::MappingStart(_, anchor, _) => {
                self.open(place, anchor, Inside::Map(Vec::new(), None))
            }
            Event::SequenceEnd | Event::MappingEnd => {
                let Some(Open { place, anchor, inside }) = self.open.pop() else { return Ok(()) };
                let value = match inside {
                    Inside::List(nodes) => Value::List(nodes),
                    Inside::Map(entries, _) => Value::Map(entries),
                };
                self.close(Node { place, value }, anchor, flaws)
            }
            Event::Alias(anchor) => match self.anchors.get(&anchor).cloned() {
                Some(node) => self.repeat(node, place, flaws),
                None => Err(whole(place, "is an alias inside what it stands for")),
            },
            _ => Ok(()),
        }
    }

    fn open(&mut self, place: Place, anchor: usize, inside: Inside) -> Result<(), Flaw> {
        if self.open.len() >= DEPTH_MAX {
            return Err(whole(place, format!("lies deeper than {DEPTH_MAX} values")));
        }
        self.open.push(Open { place, anchor, inside });
        Ok(())
    }

    /// Puts what an alias stands for in the alias's stead. Its places stay those of the original.
    fn repeat(&mut self, node: Node, at: Place, flaws: &mut Vec<Flaw>) -> Result<(), Flaw> {
        let (nodes, depth) = node.extent();
        self.nodes += nodes;
        if self.open.len() + depth > DEPTH_MAX {
            return Err(whole(at, format!("lies deeper than {DEPTH_MAX} values")));
        }
        self.close(node, 0, flaws)
    }

    /// Puts a value that is complete where it belongs.
    fn close(&mut self, node: Node, anchor: usize, flaws: &mut Vec<Flaw>) -> Result<(), Flaw> {
        self.nodes += 1;
        if self.nodes > self.nodes_max {
            let message = format!("there are more than {} values", self.nodes_max);
            return Err(whole(node.place, message));
        }
        if anchor != 0 {
            self.nodes += node.extent().0;
            self.anchors.insert(anchor, node.clone());
        }
        let path = self.path();
        match self.open.last_mut().map(|open| &mut open.inside) {
            None => self.root = Some(node),
            Some(Inside::List(nodes)) => nodes.push(node),
            Some(Inside::Map(entries, waiting)) => match waiting.take() {
                Some((name, place)) => entries.push(Entry { name, place, node }),
                None => *waiting = Some(field_name(node, entries, path, flaws)?),
            },
        }
        Ok(())
    }

    /// The path of the innermost open value.
    fn path(&self) -> String {
        let mut path = String::new();
        for (i, open) in self.open.iter().enumerate() {
            let innermost = i + 1 == self.open.len();
            match &open.inside {
                _ if innermost => {}
                Inside::List(nodes) => path.push_str(&format!("[{}]", nodes.len())),
                Inside::Map(_, Some((name, _))) => path = join(&path, name),
                Inside::Map(_, None) => {}
            }
        }
        path
    }
}

fn field_name(
    node: Node,
    entries: &[Entry],
    path: String,
    flaws: &mut Vec<Flaw>,
) -> Result<(String, Place), Flaw> {
    let place = node.place;
    let Value::Scalar { text: name, .. } = node.value else {
        return Err(Flaw { place, field: path, message: "a field's name must be text".into() });
    };
    if let Some(first) = entries.iter().find(|entry| entry.name == name) {
        let message = format!("is given twice, first on line {}", first.place.line);
        flaws.push(Flaw { place, field: join(&path, &name), message });
    }
    Ok((name, place))
}

/// The path of a field of what has that path.
pub(crate) fn join(path: &str, name: &str) -> String {
    let name: String = name.chars().take(NAME_SHOWN).flat_map(char::escape_debug).collect();
    match path {
        "" => name,
        _ => format!("{path}.{name}"),
    }
}

/// The most characters of a field's name that a path repeats.
const NAME_SHOWN: usize = 60;

impl Node {
    /// Whether nothing stands where a value should.
    pub(crate) fn is_null(&self) -> bool {
        let Value::Scalar { text, quoted: false } = &self.value else { return false };
        matches!(text.as_str(), "" | "~" | "null" | "Null" | "NULL")
    }

    /// The values in it, itself included, and how many of them lie in each other.
    fn extent(&self) -> (usize, usize) {
        let inner: Vec<&Node> = match &self.value {
            Value::Scalar { .. } => Vec::new(),
            Value::List(nodes) => nodes.iter().collect(),
            Value::Map(entries) => entries.iter().map(|entry| &entry.node).collect(),
        };
        inner
            .into_iter()
            .map(Node::extent)
            .fold((1, 1), |(nodes, depth), (n, d)| (nodes + n, depth.max(d + 1)))
    }

    /// The place of what `path` leads to, or as near to it as there is something. A field's place is its name's.
    pub(crate) fn locate(&self, path: &str) -> Option<Place> {
        match &self.value {
            Value::Map(entries) => {
                let path = path.strip_prefix('.').unwrap_or(path);
                // Names may hold dots: the longest that fits is the one that was meant.
                let fits = |entry: &Entry| {
                    let rest = path.strip_prefix(&*join("", &entry.name))?;
                    let whole = rest.is_empty() || rest.starts_with(['.', '[']);
                    whole.then_some(rest)
                };
                let found = entries.iter().filter_map(|entry| Some((entry, fits(entry)?)));
                let (entry, rest) = found.min_by_key(|(_, rest)| rest.len())?;
                Some(entry.node.locate(rest).unwrap_or(entry.place))
            }
            Value::List(nodes) => {
                let (index, rest) = path.strip_prefix('[')?.split_once(']')?;
                let node = nodes.get(index.parse::<usize>().ok()?)?;
                Some(node.locate(rest).unwrap_or(node.place))
            }
            Value::Scalar { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Node, String> {
        let mut flaws = Vec::new();
        let node = parse(text, "is empty", &mut flaws);
        let shown =
            |f: &Flaw| format!("{}:{} {} {}", f.place.line, f.place.column, f.field, f.message);
        match node {
            Ok(node) if flaws.is_empty() => Ok(node),
            Ok(_) => Err(flaws.iter().map(shown).collect::<Vec<_>>().join("; ")),
            Err(flaw) => Err(shown(&flaw)),
        }
    }

    fn placed(text: &str, path: &str) -> (usize, usize) {
        let place = read(text).unwrap().locate(path).unwrap_or(Place::TOP);
        (place.line, place.column)
    }

    #[test]
    fn paths_lead_to_places() {
        let text = "a:\n  - b: 1\n    c.d: {e: 2}\n    c: 3\n  - [x, y]\n";
        for (path, place) in [
            ("a", (1, 1)),
            ("a[0].b", (2, 5)),
            ("a[0].c.d.e", (3, 11)),
            ("a[0].c", (4, 5)),
            ("a[1][1]", (5, 9)),
            ("a[1][7]", (5, 5)),
            ("a[0].missing", (2, 5)),
            ("nothing", (1, 1)),
        ] {
            assert_eq!(placed(text, path), place, "{path}");
        }
    }

    #[test]
    fn aliases_stand_for_what_they_name() {
        let text = "a: &x {b: [1]}\nc: *x\n";
        assert_eq!(placed(text, "c.b[0]"), (1, 12));
    }

    #[test]
    fn flaws_name_their_place() {
        for (text, flaw) in [
            ("", "1:1  is empty"),
            ("# only this\n", "1:1  is empty"),
            ("a: 1\nb: {a: 1, a: 2}\n", "2:11 b.a is given twice, first on line 2"),
            ("a: 1\na: 2\n", "2:1 a is given twice, first on line 1"),
            ("x: [{a: 1}, {a: 1, a: 2}]\n", "1:20 x[1].a is given twice, first on line 1"),
            ("a: 1\n---\nb: 1\n", "2:1  a second document starts here; one is read"),
            ("a: !secret b\n", "1:12  has a tag (!…): tags mean nothing here, remove it"),
            ("[a]: b\n", "1:1  a field's name must be text"),
            ("a: &x [*x]\n", "1:8  is an alias inside what it stands for"),
        ] {
            assert_eq!(read(text).map(|_| ()), Err(flaw.to_owned()), "{text}");
        }
    }

    #[test]
    fn a_text_that_grows_without_end_is_refused() {
        let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for i in 1..20 {
            let row = format!("*a{}, ", i - 1).repeat(10);
            text.push_str(&format!("a{i}: &a{i} [{row}]\n"));
        }
        assert!(read(&text).unwrap_err().ends_with("there are more than 100000 values"));
        let mut text = format!("a0: &a0 {}{}\n", "[".repeat(200), "]".repeat(200));
        text.push_str(&format!("a1: {}*a0{}\n", "[".repeat(60), "]".repeat(60)));
        assert!(read(&text).unwrap_err().ends_with("lies deeper than 255 values"));
        assert!(read(&"[".repeat(100_000)).is_err());
        assert!(read(&"- ".repeat(100_000)).is_err());
    }
}
