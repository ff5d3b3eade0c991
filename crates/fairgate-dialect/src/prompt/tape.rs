//! A value as a flat list of its parts, made in one pass, so that members can be read in another order than they stand in.

use std::ops::Range;

use crate::scan::Scanner;

/// The most parts of a prompt that are listed: 16 bytes each. A run of numbers, such as token ids, is one part.
const NODES_MAX: usize = 1 << 18;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    String {
        escaped: bool,
    },
    /// A string that carries a file.
    File,
    /// A number, a run of numbers with commas, a boolean or null.
    Scalar,
    /// Keys and values in turns.
    Object,
    Array,
}

/// One value or key. What is inside of it follows it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Node {
    start: u32,
    end: u32,
    /// The node after it and all that is inside.
    after: u32,
    pub(super) kind: Kind,
}

impl Node {
    /// Where it stands; for strings without the quotes.
    pub(super) fn bytes(self) -> Range<usize> {
        self.start as usize..self.end as usize
    }
}

#[derive(Debug, Default)]
pub(super) struct Tape {
    pub(super) nodes: Vec<Node>,
}

impl Tape {
    /// Lists the value that begins here, in a body that is known to be JSON; says under which number. `None` where it has too
    /// many parts.
    pub(super) fn read(&mut self, body: &[u8], at: usize) -> Option<usize> {
        let number = self.nodes.len();
        self.value(&mut Scanner::within(body, at))?;
        Some(number)
    }

    /// What is directly inside of a container.
    pub(super) fn items(&self, container: usize) -> impl Iterator<Item = usize> + '_ {
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

    /// Nesting is bounded where the body was read first.
    fn value(&mut self, scanner: &mut Scanner<'_>) -> Option<()> {
        let first = scanner.peek();
        let start = scanner.at();
        match first {
            b'"' => {
                let string = scanner.known_string();
                let kind = match scanner.is_file(&string.inner) {
                    true => Kind::File,
                    false => Kind::String { escaped: string.escaped },
                };
                self.push(string.inner, kind)?;
            }
            b'{' => {
                let object = self.push(start..start, Kind::Object)?;
                scanner.take(b'{');
                let mut more = !scanner.take(b'}');
                while more {
                    let key = scanner.key().ok()?;
                    self.push(key.inner, Kind::String { escaped: key.escaped })?;
                    self.value(scanner)?;
                    more = scanner.take(b',');
                    scanner.take(b'}');
                }
                self.close(object)?;
            }
            b'[' => {
                let array = self.push(start..start, Kind::Array)?;
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
                self.push(scalar, Kind::Scalar)?;
            }
        }
        Some(())
    }

    fn push(&mut self, bytes: Range<usize>, kind: Kind) -> Option<usize> {
        let number = self.nodes.len();
        if number == NODES_MAX {
            return None;
        }
        let after = u32::try_from(number + 1).ok()?;
        let (start, end) = (u32::try_from(bytes.start).ok()?, u32::try_from(bytes.end).ok()?);
        self.nodes.push(Node { start, end, after, kind });
        Some(number)
    }

    /// Everything since is inside of this container.
    fn close(&mut self, container: usize) -> Option<()> {
        self.nodes[container].after = u32::try_from(self.nodes.len()).ok()?;
        Some(())
    }
}

fn starts_number(byte: u8) -> bool {
    byte == b'-' || byte.is_ascii_digit()
}
