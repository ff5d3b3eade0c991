//! Request sizes in tokens, from public traces and built in.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use fairgate_testkit::test_data;
use fairgate_testkit::workload::SeededRng;

/// The request sizes of one workload, as (input, output) tokens.
#[derive(Debug)]
pub(crate) struct Sizes {
    pub(crate) name: &'static str,
    list: Vec<(u64, u64)>,
    /// Mean of input and output tokens together.
    mean: u64,
}

impl Sizes {
    fn new(name: &'static str, list: Vec<(u64, u64)>) -> Self {
        let total: u64 = list.iter().map(|(input, output)| input + output).sum();
        let mean = total / list.len() as u64;
        Self { name, list, mean }
    }

    /// Draws one of the sizes.
    pub(crate) fn draw(&self, rng: &mut SeededRng) -> (u64, u64) {
        rng.one_of(&self.list)
    }

    /// Returns the mean number of tokens of a request.
    pub(crate) fn mean(&self) -> u64 {
        self.mean
    }
}

/// The estimate of a request's cost before it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Estimate {
    /// Exactly the tokens that the request will use.
    Exact,
    /// The mean number of tokens of a request.
    Mean,
    /// Four times the tokens that the request will use.
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

/// Returns all workloads that are available here, which are at least the built-in ones.
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

/// Returns the workload with this name, or the first built-in workload if it is not available.
pub(crate) fn named(name: &str) -> &'static Sizes {
    let found = all().iter().find(|sizes| sizes.name == name);
    found.unwrap_or_else(|| named(BUILT_IN))
}

const BUILT_IN: &str = "long tail";

/// Generates sizes without a file. The first workload has a long tail like the traces. The second has two kinds of
/// requests whose sizes differ by a factor of a hundred.
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

/// Reads the columns `input_tokens` and `output_tokens` of a table, with `gzip` if the name ends with gz. Returns
/// `None` if the file or the tool does not exist.
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
