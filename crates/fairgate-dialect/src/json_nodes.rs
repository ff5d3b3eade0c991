//! A JSON value as a flat list of nodes, made in one pass, so that members can be read in any order.

use std::ops::Range;

use crate::json_scanner::JsonScanner;

/// Greatest number of nodes, at 16 bytes each. A run of numbers, such as token ids, is one node.
const NODES_MAX: usize = 1 << 18;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JsonNodeKind {
    String {
        escaped: bool,
    },
    /// A string that holds a file.
    File,
    /// A number, a run of numbers with commas, a boolean or null.
    Scalar,
    /// An object, whose items are keys and values in turn.
    Object,
    Array,
}

/// One value or key. The nodes of the values inside a container follow the container's node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JsonNode {
    start: u32,
    end: u32,
    /// Index of the first node that comes after this node and after all nodes inside it.
    after: u32,
    pub(crate) kind: JsonNodeKind,
}

impl JsonNode {
    /// Returns the range of the node in the body, without the quotes of a string.
    pub(crate) fn bytes(self) -> Range<usize> {
        self.start as usize..self.end as usize
    }
}

#[derive(Debug, Default)]
pub(crate) struct JsonNodes {
    pub(crate) nodes: Vec<JsonNode>,
}

impl JsonNodes {
    /// Adds the nodes of the value that begins at offset `at`, in a body that is known to be JSON. Returns the index of
    /// the value's node; `None` if there would be more than [`NODES_MAX`] nodes.
    pub(crate) fn read(&mut self, body: &[u8], at: usize) -> Option<usize> {
        let number = self.nodes.len();
        self.value(&mut JsonScanner::within(body, at))?;
        Some(number)
    }

    /// Iterates over the nodes directly inside a container.
    pub(crate) fn items(&self, container: usize) -> impl Iterator<Item = usize> + '_ {
        let end = self.nodes[container].after as usize;
        let mut at = container + 1;
        std::iter::from_fn(move || {
            let item = at;
            (item < end).then(|| {
                at = self.nodes[item].after as usize;
                item
            })
        })
    }

    /// Adds the nodes of the next value. The recursion is bounded, because the depth of the body was checked before.
    fn value(&mut self, scanner: &mut JsonScanner<'_>) -> Option<()> {
        let first = scanner.peek();
        let start = scanner.at();
        match first {
            b'"' => {
                let string = scanner.known_string();
                let kind = match scanner.is_file(&string.inner) {
                    true => JsonNodeKind::File,
                    false => JsonNodeKind::String { escaped: string.escaped },
                };
                self.push(string.inner, kind)?;
            }
            b'{' => {
                let object = self.push(start..start, JsonNodeKind::Object)?;
                scanner.take(b'{');
                let mut more = !scanner.take(b'}');
                while more {
                    let key = scanner.key().ok()?;
                    self.push(key.inner, JsonNodeKind::String { escaped: key.escaped })?;
                    self.value(scanner)?;
                    more = scanner.take(b',');
                    scanner.take(b'}');
                }
                self.close(object)?;
            }
            b'[' => {
                let array = self.push(start..start, JsonNodeKind::Array)?;
                scanner.take(b'[');
                let mut more = !scanner.take(b']');
                while more {
                    let number = starts_number(scanner.peek());
                    self.value(scanner)?;
                    more = scanner.take(b',');
                    while more && number && starts_number(scanner.peek()) {
                        scanner.number().ok()?;
                        self.nodes.last_mut()?.end = u32::try_from(scanner.at()).ok()?;
                        more = scanner.take(b',');
                    }
                    scanner.take(b']');
                }
                self.close(array)?;
            }
            _ => {
                let scalar = scanner.value(1).ok()?;
                self.push(scalar, JsonNodeKind::Scalar)?;
            }
        }
        Some(())
    }

    fn push(&mut self, bytes: Range<usize>, kind: JsonNodeKind) -> Option<usize> {
        let number = self.nodes.len();
        if number == NODES_MAX {
            return None;
        }
        let after = u32::try_from(number + 1).ok()?;
        let (start, end) = (u32::try_from(bytes.start).ok()?, u32::try_from(bytes.end).ok()?);
        self.nodes.push(JsonNode { start, end, after, kind });
        Some(number)
    }

    /// Closes a container. All nodes that were added after the container's node are inside it.
    fn close(&mut self, container: usize) -> Option<()> {
        self.nodes[container].after = u32::try_from(self.nodes.len()).ok()?;
        Some(())
    }
}

fn starts_number(byte: u8) -> bool {
    byte == b'-' || byte.is_ascii_digit()
}
