//! Numbers of tokens of requests: from public traces, and built-in ones.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use fairgate_testkit::test_data;
use fairgate_testkit::workload::SeededRng;

/// The sizes of one workload: (input, output) tokens.
#[derive(Debug)]
pub(crate) struct Sizes {
    pub(crate) name: &'static str,
    list: Vec<(u64, u64)>,
    /// The mean of input and output together.
    mean: u64,
}

impl Sizes {
    fn new(name: &'static str, list: Vec<(u64, u64)>) -> Self {
        let total: u64 = list.iter().map(|(input, output)| input + output).sum();
        let mean = total / list.len() as u64;
        Self { name, list, mean }
    }

    /// Any of them.
    pub(crate) fn draw(&self, rng: &mut SeededRng) -> (u64, u64) {
        rng.one_of(&self.list)
    }

    /// The tokens of all of them, on average.
    pub(crate) fn mean(&self) -> u64 {
        self.mean
    }
}

/// What a request is said to cost before it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Estimate {
    /// What it will use.
    Exact,
    /// What requests use on average.
    Mean,
    /// Four times what it will use.
    FourTimes,
}

impl Estimate {
    pub(crate) const ALL: [Self; 3] = [Self::Exact, Self::Mean, Self::FourTimes];

    pub(crate) fn of(self, used: u64, sizes: &Sizes) -> u64 {
        match self {
            Self::Exact => used,
            Self::Mean => sizes.mean,
            Self::FourTimes => 4 * used,
        }
    }
}

/// Every workload that can be had here; at least the built-in ones.
pub(crate) fn all() -> &'static [Sizes] {
    static ALL: OnceLock<Vec<Sizes>> = OnceLock::new();
    ALL.get_or_init(|| {
        let azure = ["azure code", "azure conversation"].into_iter();
        let azure =
            azure.zip(["azure_code_2023.csv", "azure_conv_2023.csv"]).map(|(name, file)| {
                csv(name, &test_data::trace(file)).expect("the trace is in the repository")
            });
        let servegen = test_data::shared_trace("servegen_r1_requests_1h_SYNTH.csv.gz");
        let servegen = servegen.and_then(|path| csv("servegen", &path));
        azure.chain(servegen).chain(built_in()).collect()
    })
}

/// The workload of that name, else the first built-in one.
pub(crate) fn named(name: &str) -> &'static Sizes {
    let found = all().iter().find(|sizes| sizes.name == name);
    found.unwrap_or_else(|| named(BUILT_IN))
}

const BUILT_IN: &str = "long tail";

/// Sizes that need no file: a long tail like that of the traces, and two kinds of requests that differ by a factor of
/// a hundred.
fn built_in() -> [Sizes; 2] {
    let mut rng = SeededRng::new(2023);
    let tail = (0..4096).map(|_| {
        // Each doubling is half as likely as the one before, from 64 up to 8192.
        let doublings = u64::from(rng.next_u64().trailing_zeros().min(6));
        let input = rng.range(64 << doublings..=128 << doublings);
        (input, rng.range(6..=600))
    });
    let tail = tail.collect();
    let two = (0..1024).map(|i| if i % 8 == 0 { (6000, 400) } else { (50, 14) }).collect();
    [Sizes::new(BUILT_IN, tail), Sizes::new("two kinds", two)]
}

/// The columns `input_tokens` and `output_tokens` of a table, unpacked by `gzip` where it ends in gz; nothing where
/// the file or the tool is not there.
fn csv(name: &'static str, path: &Path) -> Option<Sizes> {
    let text = if path.extension()? == "gz" {
        let mut gzip = Command::new("gzip");
        let output = gzip.arg("-dc").arg(path).stderr(Stdio::null()).output().ok()?;
        String::from_utf8(output.stdout).ok()?
    } else {
        std::fs::read_to_string(path).ok()?
    };
    let mut lines = text.lines();
    let columns: Vec<&str> = lines.next()?.split(',').collect();
    let column = |name: &str| columns.iter().position(|column| *column == name);
    let (input, output) = (column("input_tokens")?, column("output_tokens")?);
    let row = |line: &str| {
        let cells: Vec<&str> = line.split(',').collect();
        Some((cells.get(input)?.parse().ok()?, cells.get(output)?.parse().ok()?))
    };
    let list: Vec<(u64, u64)> = lines.filter_map(row).collect();
    (!list.is_empty()).then(|| Sizes::new(name, list))
}
