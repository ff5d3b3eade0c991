//! Parses a YAML text into a tree whose nodes know their line and column. Scalars stay text, because the reader of each
//! field decides whether the text is a number, a duration or something else.

use std::collections::{BTreeMap, HashMap};

use granit_parser::{Event, Parser, ScalarStyle, Span};

use crate::error::FilePosition;

/// A value and its position.
#[derive(Clone, Debug)]
pub(crate) struct YamlNode {
    pub(crate) place: FilePosition,
    pub(crate) value: YamlValue,
}

#[derive(Clone, Debug)]
pub(crate) enum YamlValue {
    /// A text. `quoted` is true if the text is not a plain scalar of YAML, and so is never a number, a boolean or null.
    Scalar {
        text: String,
        quoted: bool,
    },
    List(Vec<YamlNode>),
    Map(Vec<YamlEntry>),
}

/// A field of a mapping.
#[derive(Clone, Debug)]
pub(crate) struct YamlEntry {
    pub(crate) name: String,
    pub(crate) place: FilePosition,
    pub(crate) node: YamlNode,
}

/// An error in a text, with its position.
#[derive(Debug)]
pub(crate) struct FieldError {
    pub(crate) place: FilePosition,
    pub(crate) field: String,
    pub(crate) message: String,
}

/// Largest number of values in a configuration. Values that aliases repeat count each time.
const NODES_MAX: usize = 100_000;

/// The most bytes of text that aliases may repeat in total.
const REPEATED_BYTES_MAX: usize = 16 << 20;

/// Deepest nesting of values. A policy of 64 nested nodes needs half of this depth.
const DEPTH_MAX: usize = 255;

/// Parses a text. Fails on invalid YAML. Duplicate fields are recorded in `flaws`, and parsing continues. `empty` is
/// the error message for an empty text.
pub(crate) fn parse(
    text: &str,
    empty: &str,
    flaws: &mut Vec<FieldError>,
) -> Result<YamlNode, FieldError> {
    parse_within(NODES_MAX, text, empty, flaws)
}

/// Parses a text as [`parse`] does, but with a limit of `nodes_max` values.
pub(crate) fn parse_within(
    nodes_max: usize,
    text: &str,
    empty: &str,
    flaws: &mut Vec<FieldError>,
) -> Result<YamlNode, FieldError> {
    let (open, anchors) = (Vec::new(), BTreeMap::new());
    let mut builder =
        YamlTreeBuilder { open, root: None, anchors, nodes: 0, nodes_max, repeated_bytes: 0 };
    let mut documents = 0;
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|error| FieldError {
            place: FilePosition {
                line: error.marker().line().max(1),
                column: error.marker().col() + 1,
            },
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
    builder.root.ok_or_else(|| whole(FilePosition::TOP, empty))
}

fn whole(place: FilePosition, message: impl Into<String>) -> FieldError {
    FieldError { place, field: String::new(), message: message.into() }
}

fn place(span: &Span) -> FilePosition {
    FilePosition { line: span.start.line().max(1), column: span.start.col() + 1 }
}

/// The tree that has been read so far.
struct YamlTreeBuilder {
    /// The lists and mappings that are still open, outermost first.
    open: Vec<OpenYamlNode>,
    root: Option<YamlNode>,
    anchors: BTreeMap<usize, YamlNode>,
    nodes: usize,
    nodes_max: usize,
    repeated_bytes: usize,
}

struct OpenYamlNode {
    place: FilePosition,
    anchor: usize,
    inside: OpenYamlContent,
}

enum OpenYamlContent {
    List(Vec<YamlNode>),
    Map(OpenYamlMap),
}

/// A mapping that is still open.
#[derive(Default)]
struct OpenYamlMap {
    entries: Vec<YamlEntry>,
    /// Name and position of the field whose value has not been read yet.
    waiting: Option<(String, FilePosition)>,
    /// Line of each field's name. A search in `entries` would make long mappings take quadratic time.
    lines: HashMap<String, usize>,
}

impl YamlTreeBuilder {
    fn take(
        &mut self,
        event: Event<'_>,
        span: &Span,
        flaws: &mut Vec<FieldError>,
    ) -> Result<(), FieldError> {
        let place = place(span);
        if event.tag().is_some() {
            return Err(whole(place, "has a tag (!…): tags mean nothing here, remove it"));
        }
        match event {
            Event::Scalar(text, style, anchor, _) => {
                let quoted = style != ScalarStyle::Plain;
                let value = YamlValue::Scalar { text: text.into_owned(), quoted };
                self.close(YamlNode { place, value }, anchor, flaws)
            }
            Event::SequenceStart(_, anchor, _) => {
                self.open(place, anchor, OpenYamlContent::List(Vec::new()))
            }
            Event::MappingStart(_, anchor, _) => {
                self.open(place, anchor, OpenYamlContent::Map(OpenYamlMap::default()))
            }
            Event::SequenceEnd | Event::MappingEnd => {
                let Some(OpenYamlNode { place, anchor, inside }) = self.open.pop() else {
                    return Ok(());
                };
                let value = match inside {
                    OpenYamlContent::List(nodes) => YamlValue::List(nodes),
                    OpenYamlContent::Map(map) => YamlValue::Map(map.entries),
                };
                self.close(YamlNode { place, value }, anchor, flaws)
            }
            Event::Alias(anchor) => match self.anchors.get(&anchor).cloned() {
                Some(node) => self.repeat(node, place, flaws),
                None => Err(whole(place, "is an alias inside what it stands for")),
            },
            _ => Ok(()),
        }
    }

    fn open(
        &mut self,
        place: FilePosition,
        anchor: usize,
        inside: OpenYamlContent,
    ) -> Result<(), FieldError> {
        if self.open.len() >= DEPTH_MAX {
            return Err(whole(place, format!("lies deeper than {DEPTH_MAX} values")));
        }
        self.open.push(OpenYamlNode { place, anchor, inside });
        Ok(())
    }

    /// Inserts a copy of the value that an alias names. The copy keeps the positions of the original.
    fn repeat(
        &mut self,
        node: YamlNode,
        at: FilePosition,
        flaws: &mut Vec<FieldError>,
    ) -> Result<(), FieldError> {
        let YamlExtent { nodes, depth, bytes } = node.extent();
        self.nodes += nodes;
        self.count_repeated(bytes, at)?;
        if self.open.len() + depth > DEPTH_MAX {
            return Err(whole(at, format!("lies deeper than {DEPTH_MAX} values")));
        }
        self.close(node, 0, flaws)
    }

    /// Counts the bytes of text that anchors and aliases copy. The text is copied once for the anchor itself and once
    /// for each alias.
    fn count_repeated(&mut self, bytes: usize, at: FilePosition) -> Result<(), FieldError> {
        self.repeated_bytes = self.repeated_bytes.saturating_add(bytes);
        if self.repeated_bytes > REPEATED_BYTES_MAX {
            let message =
                format!("aliases repeat more than {} MiB of text", REPEATED_BYTES_MAX >> 20);
            return Err(whole(at, message));
        }
        Ok(())
    }

    /// Adds a complete value to the innermost open list or mapping, or makes it the root.
    fn close(
        &mut self,
        node: YamlNode,
        anchor: usize,
        flaws: &mut Vec<FieldError>,
    ) -> Result<(), FieldError> {
        self.nodes += 1;
        if self.nodes > self.nodes_max {
            let message = format!("there are more than {} values", self.nodes_max);
            return Err(whole(node.place, message));
        }
        if anchor != 0 {
            let YamlExtent { nodes, bytes, .. } = node.extent();
            self.nodes += nodes;
            self.count_repeated(bytes, node.place)?;
            self.anchors.insert(anchor, node.clone());
        }
        let path = self.path();
        match self.open.last_mut().map(|open| &mut open.inside) {
            None => self.root = Some(node),
            Some(OpenYamlContent::List(nodes)) => nodes.push(node),
            Some(OpenYamlContent::Map(map)) => match map.waiting.take() {
                Some((name, place)) => map.entries.push(YamlEntry { name, place, node }),
                None => map.waiting = Some(field_name(node, &mut map.lines, path, flaws)?),
            },
        }
        Ok(())
    }

    /// Returns the path of the innermost open value.
    fn path(&self) -> String {
        let mut path = String::new();
        for (i, open) in self.open.iter().enumerate() {
            let innermost = i + 1 == self.open.len();
            match &open.inside {
                _ if innermost => {}
                OpenYamlContent::List(nodes) => path.push_str(&format!("[{}]", nodes.len())),
                OpenYamlContent::Map(map) => {
                    if let Some((name, _)) = &map.waiting {
                        path = join(&path, name);
                    }
                }
            }
        }
        path
    }
}

fn field_name(
    node: YamlNode,
    lines: &mut HashMap<String, usize>,
    path: String,
    flaws: &mut Vec<FieldError>,
) -> Result<(String, FilePosition), FieldError> {
    let place = node.place;
    let YamlValue::Scalar { text: name, .. } = node.value else {
        return Err(FieldError {
            place,
            field: path,
            message: "a field's name must be text".into(),
        });
    };
    if let Some(first) = lines.get(&name) {
        let message = format!("is given twice, first on line {first}");
        flaws.push(FieldError { place, field: join(&path, &name), message });
    }
    lines.entry(name.clone()).or_insert(place.line);
    Ok((name, place))
}

/// Appends a field's name to the path of its parent.
pub(crate) fn join(path: &str, name: &str) -> String {
    let name: String = name.chars().take(NAME_SHOWN).flat_map(char::escape_debug).collect();
    match path {
        "" => name,
        _ => format!("{path}.{name}"),
    }
}

/// Size of a value, for the limits on aliases.
struct YamlExtent {
    /// Number of values, including itself.
    nodes: usize,
    /// Depth of the nesting, including itself.
    depth: usize,
    /// Bytes of text in names and scalars.
    bytes: usize,
}

/// The most characters of a field's name that a path repeats.
const NAME_SHOWN: usize = 60;

impl YamlNode {
    /// Returns true for an unquoted null or empty value.
    pub(crate) fn is_null(&self) -> bool {
        let YamlValue::Scalar { text, quoted: false } = &self.value else { return false };
        matches!(text.as_str(), "" | "~" | "null" | "Null" | "NULL")
    }

    /// Computes the size of the value.
    fn extent(&self) -> YamlExtent {
        let mut extent = YamlExtent { nodes: 1, depth: 1, bytes: 0 };
        let mut add = |node: &YamlNode| {
            let YamlExtent { nodes, depth, bytes } = node.extent();
            extent.nodes += nodes;
            extent.depth = extent.depth.max(depth + 1);
            extent.bytes += bytes;
        };
        match &self.value {
            YamlValue::Scalar { text, .. } => extent.bytes = text.len(),
            YamlValue::List(nodes) => nodes.iter().for_each(add),
            YamlValue::Map(entries) => {
                entries.iter().for_each(|entry| add(&entry.node));
                extent.bytes += entries.iter().map(|entry| entry.name.len()).sum::<usize>();
            }
        }
        extent
    }

    /// Returns the position of the value at `path`, or of its nearest existing parent. The position of a field is that
    /// of its name.
    pub(crate) fn locate(&self, path: &str) -> Option<FilePosition> {
        match &self.value {
            YamlValue::Map(entries) => {
                let path = path.strip_prefix('.').unwrap_or(path);
                // Names may contain dots: the longest matching name wins.
                let fits = |entry: &YamlEntry| {
                    let rest = path.strip_prefix(&*join("", &entry.name))?;
                    let whole = rest.is_empty() || rest.starts_with(['.', '[']);
                    whole.then_some(rest)
                };
                let found = entries.iter().filter_map(|entry| Some((entry, fits(entry)?)));
                let (entry, rest) = found.min_by_key(|(_, rest)| rest.len())?;
                Some(entry.node.locate(rest).unwrap_or(entry.place))
            }
            YamlValue::List(nodes) => {
                let (index, rest) = path.strip_prefix('[')?.split_once(']')?;
                let node = nodes.get(index.parse::<usize>().ok()?)?;
                Some(node.locate(rest).unwrap_or(node.place))
            }
            YamlValue::Scalar { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<YamlNode, String> {
        let mut flaws = Vec::new();
        let node = parse(text, "is empty", &mut flaws);
        let shown = |f: &FieldError| {
            format!("{}:{} {} {}", f.place.line, f.place.column, f.field, f.message)
        };
        match node {
            Ok(node) if flaws.is_empty() => Ok(node),
            Ok(_) => Err(flaws.iter().map(shown).collect::<Vec<_>>().join("; ")),
            Err(flaw) => Err(shown(&flaw)),
        }
    }

    fn placed(text: &str, path: &str) -> (usize, usize) {
        let place = read(text).unwrap().locate(path).unwrap_or(FilePosition::TOP);
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
        // Few values, of which each is long.
        let mut text = format!("- &p {}\n", "x".repeat(1 << 20));
        text.push_str(&"- *p\n".repeat(15));
        assert!(read(&text).is_ok());
        text.push_str(&"- *p\n".repeat(2000));
        assert!(read(&text).unwrap_err().ends_with("aliases repeat more than 16 MiB of text"));
        assert!(read(&"[".repeat(100_000)).is_err());
        assert!(read(&"- ".repeat(100_000)).is_err());
    }
}
