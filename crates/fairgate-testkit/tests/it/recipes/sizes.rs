//! Request sizes from public traces of LLM serving.
//!
//! The traces are Azure's of 2023, of a chat service and of a code service (Patel et al., Splitwise, ISCA 2024; CC-BY 4.0).
//! They are in the repository, in `tests/traces`.

use std::fs;

use fairgate_testkit::test_data;

/// The tokens of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Size {
    pub(crate) input: u64,
    pub(crate) output: u64,
}

impl Size {
    pub(crate) fn tokens(self) -> u64 {
        self.input + self.output
    }

    /// Returns the time that the request runs, in microseconds, at 20 000 input tokens and 50
    /// output tokens per second.
    pub(crate) fn duration_us(self) -> u64 {
        self.input * 50 + self.output * 20_000
    }
}

/// The sizes of both traces.
#[derive(Clone, Debug)]
pub(crate) struct Traces {
    pub(crate) conversation: Vec<Size>,
    pub(crate) code: Vec<Size>,
}

impl Traces {
    pub(crate) fn load() -> Self {
        let read = |name: &str| {
            let text = fs::read_to_string(test_data::trace(name));
            rows(&text.expect("the trace is in the repository"))
        };
        Self { conversation: read("azure_conv_2023.csv"), code: read("azure_code_2023.csv") }
    }
}

/// Reads the last two columns of a table, which are input and output tokens.
fn rows(text: &str) -> Vec<Size> {
    let row = |line: &str| {
        let numbers: Vec<u64> = line.split(',').skip(1).filter_map(|n| n.parse().ok()).collect();
        match numbers[..] {
            [input, output] => size((input, output)),
            _ => panic!("not a row of a trace: {line}"),
        }
    };
    text.lines().skip(1).map(row).collect()
}

fn size((input, output): (u64, u64)) -> Size {
    Size { input, output }
}
