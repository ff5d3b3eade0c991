//! Tests of shares, caps, bands, deadlines, pauses, rates and late requests in random closed loops in virtual time,
//! with the request sizes of public traces. Service is measured only from the decisions and from the tokens that
//! requests really used.
//!
//! `FAIRGATE_SEEDS` sets the number of seeds that each test tries, and `FAIRGATE_SEED` the first seed. A failure prints
//! its seed.

mod arrivals;
mod bands;
mod books;
mod caps;
mod deadlines;
mod late;
mod meter;
mod pairs;
mod rates;
mod resume;
mod ring;
mod sizes;
mod starvation;
mod world;

use fairgate_testkit::seeds::for_each_seed;

/// Tries `default` seeds, or the number of seeds in `FAIRGATE_SEEDS`.
fn seeds(name: &str, default: u64, case: impl Fn(u64) + Sync) {
    let asked = std::env::var("FAIRGATE_SEEDS").ok().and_then(|text| text.parse().ok());
    for_each_seed(name, asked.unwrap_or(default), case);
}
