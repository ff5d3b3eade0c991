//! Reads the files that callgrind writes, one for each thread.
//!
//! A file is a list of functions. Below each function are lines with numbers of instructions. A
//! line before them names the source file of this code: the function's own file, or the file of
//! another function that was inlined. `calls=` gives the number of calls of another function. The
//! line after it has the instructions of all these calls, which are not the caller's own. Names are
//! written once, and referred to by numbers afterwards.

use std::collections::HashMap;

use anyhow::{Context, Result};

/// The instructions of one thread.
#[derive(Debug, Default)]
pub(crate) struct ThreadProfile {
    /// Instructions by the place of their code.
    pub(crate) own: HashMap<CodePlace, u64>,
    /// Calls of each function from other functions.
    pub(crate) calls: HashMap<CallEdge, CallCost>,
}

/// A function with a source file of which the function contains code.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct CodePlace {
    pub(crate) function: String,
    /// The source file of the function itself.
    pub(crate) function_file: String,
    /// The source file of this code. It differs from `function_file` if the code was inlined.
    pub(crate) code_file: String,
}

/// A pair of functions, one of which calls the other.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct CallEdge {
    pub(crate) caller: String,
    pub(crate) called: String,
}

/// The number of calls, and the instructions that they took.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct CallCost {
    pub(crate) count: u64,
    /// Instructions inside the called function and everything that it called.
    pub(crate) instructions: u64,
}

impl ThreadProfile {
    /// Parses a file of callgrind.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let mut reader = ProfileReader::default();
        for (index, line) in text.lines().enumerate() {
            reader.line(line).with_context(|| format!("line {}: {line}", index + 1))?;
        }
        Ok(reader.profile)
    }

    /// Returns the number of all instructions of the thread.
    pub(crate) fn total(&self) -> u64 {
        self.own.values().sum()
    }

    /// Returns the cost of all calls from a function outside a set into a function of that set. The
    /// cost of a call includes all functions that the called function calls.
    pub(crate) fn calls_into(&self, is_inside: impl Fn(&str) -> bool) -> CallCost {
        let entries = self.calls.iter();
        let entries =
            entries.filter(|(edge, _)| is_inside(&edge.called) && !is_inside(&edge.caller));
        entries.fold(CallCost::default(), |sum, (_, cost)| CallCost {
            count: sum.count + cost.count,
            instructions: sum.instructions + cost.instructions,
        })
    }
}

#[derive(Default)]
struct ProfileReader {
    profile: ThreadProfile,
    functions: HashMap<String, String>,
    files: HashMap<String, String>,
    function: String,
    function_file: String,
    code_file: String,
    called: String,
    /// Number of calls if the next line has their instructions; otherwise `None`.
    pending_calls: Option<u64>,
}

impl ProfileReader {
    fn line(&mut self, line: &str) -> Result<()> {
        match line.split_once('=') {
            Some(("fl" | "fi" | "fe", file)) => self.code_file = named(&mut self.files, file),
            Some(("fn", function)) => {
                self.function = named(&mut self.functions, function);
                // A function without a file line of its own is in the file that was named last.
                self.function_file.clone_from(&self.code_file);
            }
            Some(("cfn", function)) => self.called = named(&mut self.functions, function),
            Some(("cfi" | "cfl", file)) => _ = named(&mut self.files, file),
            Some(("calls", calls)) => {
                let count = calls.split(' ').next().unwrap_or_default();
                self.pending_calls = Some(count.parse()?);
            }
            _ if line.starts_with(|c: char| c.is_ascii_digit() || "+-*".contains(c)) => {
                let count = line.split(' ').nth(1).unwrap_or("0");
                self.instructions(count.parse()?);
            }
            // These are headings, names of programs and empty lines.
            _ => {}
        }
        Ok(())
    }

    fn instructions(&mut self, count: u64) {
        if let Some(calls) = self.pending_calls.take() {
            let edge = CallEdge { caller: self.function.clone(), called: self.called.clone() };
            let cost = self.profile.calls.entry(edge).or_default();
            cost.count += calls;
            cost.instructions += count;
        } else {
            let place = CodePlace {
                function: self.function.clone(),
                function_file: self.function_file.clone(),
                code_file: self.code_file.clone(),
            };
            *self.profile.own.entry(place).or_default() += count;
        }
    }
}

/// Returns the name in `(7) name`, and stores it for a later `(7)`.
fn named(names: &mut HashMap<String, String>, text: &str) -> String {
    match text.split_once(") ") {
        Some((number, name)) => {
            names.insert(number.to_owned(), name.to_owned());
            name.to_owned()
        }
        None => {
            let number = text.trim_end_matches(')');
            names.get(number).cloned().unwrap_or_else(|| text.to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "\
# callgrind format
version: 1
cmd:  fairgate serve --config=f.yaml
positions: line
events: Ir
summary: 158

fl=(1) /src/a.rs
fn=(1) a::main
10 5
fi=(2) /rustc/lib.rs
+3 7
fe=(1)
* 1
cob=(2) /lib/libc.so
cfi=(3) malloc.c
cfn=(2) malloc
calls=4 100
12 40
cfn=(3) a::inner
calls=1 20
13 60

fl=(3)
fn=(2)
100 40

fl=(1)
fn=(3)
20 35
cfi=(3)
cfn=(2)
calls=2 100
-1 25
";

    #[test]
    fn own_instructions_are_told_from_those_of_calls() {
        let profile = ThreadProfile::parse(FILE).expect("it is well formed");
        assert_eq!(profile.total(), 5 + 7 + 1 + 40 + 35);
        let place = |function: &str, function_file: &str, code_file: &str| CodePlace {
            function: function.into(),
            function_file: function_file.into(),
            code_file: code_file.into(),
        };
        assert_eq!(profile.own[&place("a::main", "/src/a.rs", "/src/a.rs")], 6);
        assert_eq!(profile.own[&place("a::main", "/src/a.rs", "/rustc/lib.rs")], 7);
        assert_eq!(profile.own[&place("malloc", "malloc.c", "malloc.c")], 40);
        assert_eq!(profile.own[&place("a::inner", "/src/a.rs", "/src/a.rs")], 35);
    }

    #[test]
    fn calls_within_a_set_are_not_counted_twice() {
        let profile = ThreadProfile::parse(FILE).expect("it is well formed");
        let malloc = profile.calls_into(|name| name == "malloc");
        assert_eq!(malloc, CallCost { count: 6, instructions: 65 });
        let inner = profile.calls_into(|name| name != "a::main");
        assert_eq!(inner, CallCost { count: 5, instructions: 100 });
    }
}
