//! Shares, caps, bands, deadlines, pauses, rates and late requests as they come out in closed loops: random, seeded, in virtual time, on
//! the request sizes of public traces. Service is measured from decisions and from what requests really used alone.
//!
//! `FAIRGATE_SEEDS` sets how many seeds each test tries, `FAIRGATE_SEED` where they begin. A failure prints its seed.

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

/// Tries so many seeds, or as many as `FAIRGATE_SEEDS` says.
fn seeds(name: &str, default: u64, case: impl Fn(u64) + Sync) {
    let asked = std::env::var("FAIRGATE_SEEDS").ok().and_then(|text| text.parse().ok());
    for_each_seed(name, asked.unwrap_or(default), case);
}
