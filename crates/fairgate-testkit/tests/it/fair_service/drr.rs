//! drr: costs by quantum.
//!
//! Let cᵢ be the largest cost of a class, dᵢ its deficit, Gᵢ the quanta it has earned, and Eᵢ the costs of all its
//! grants; what requests really used changes nothing. Classes always wait, fcfs, from a start at nothing. Then
//! dᵢ = Gᵢ·qᵢ − Eᵢ.
//!
//! The cursor goes round and never jumps; let Xᵢ count how often it has crossed class i. Over any part of the journal
//! |ΔXᵢ − ΔXⱼ| ≤ 1. A scan that is no bulk pick gives one quantum to each class that it crosses, but not to a
//! winner that could pay already. Where a worker's slots bind, all classes are blocked while it is full, and a turn
//! goes on when a slot is free: the order is the same.
//!
//! # No bulk
//! A bulk pick needs all classes two quanta or more short of their heads, which cannot be where one class has a quantum
//! of its largest cost. A class that ends its turn, or is passed, cannot pay for its head; so the next crossing gives
//! it a quantum: G = X. And 0 ≤ dᵢ < cᵢ + qᵢ, so
//!
//! ```text
//!     (5)  | ΔEᵢ/qᵢ − ΔEⱼ/qⱼ | ≤ 1 + (cᵢ + qᵢ)/qᵢ + (cⱼ + qⱼ)/qⱼ
//! ```
//!
//! between any two moments. Starvation: after a grant to i it needs at most Kᵢ = ⌈cᵢ/qᵢ⌉ quanta, so j is
//! crossed at most Kᵢ times before i is granted again; and j could not pay when i was, so it had less than cⱼ:
//!
//! ```text
//!     (6)  ΔEⱼ ≤ Kᵢ·qⱼ + cⱼ − 1   between two grants to i
//! ```
//!
//! and each grant to j costs ρⱼ at least, which bounds how many they are.
//!
//! # Bulk
//! A bulk pick gives m ≥ 2 quanta to every class, crosses those up to the winner, and not those behind it: these are
//! visited next and earn one more, unless they can pay already. Counting 1 for a crossing, a bulk pick gives m − 1 to
//! the crossed, and m to the others (m − 1 where they are then crossed for nothing). So Gᵢ ≤ Gⱼ + 1 + b, where b counts
//! the bulk picks that gave one more to i and not to j. Each of these comes with a crossing of j of its own, and gives
//! j m − 1 ≥ 1 besides: Gⱼ ≥ 2b, so that from the start Gᵢ ≤ 1 + 3/2·Gⱼ, and
//!
//! ```text
//!     (7)  Eᵢ/qᵢ ≤ 1 + 3/2 · (Eⱼ + cⱼ + qⱼ)/qⱼ
//! ```
//!
//! Between any two moments there may be one crossing of j for nothing whose bulk pick came before:
//! ΔGᵢ ≤ 5/2 + 3/2·ΔGⱼ, and i may have had credit:
//!
//! ```text
//!     (8)  ΔEᵢ/qᵢ ≤ 5/2 + (cᵢ + qᵢ)/qᵢ + 3/2 · (ΔEⱼ + cⱼ + qⱼ)/qⱼ
//! ```
//!
//! Starvation: i earns at most Kᵢ between two grants to it, so j at most 5/2 + 3/2·Kᵢ:
//!
//! ```text
//!     (9)  ΔEⱼ/qⱼ ≤ 5/2 + 3/2·Kᵢ + (cⱼ + qⱼ)/qⱼ
//! ```

use fairgate_core::attribute::Attribute;
use fairgate_testkit::workload::SeededRng;

use crate::fair_service::books::{Books, Pairs};
use crate::fair_service::stage::{Leaf, Request, Stage, Watch};
use crate::fair_service::{Played, played, run};

/// The kind of ring, which decides whether all quanta may be too small for the heads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ring {
    NoBulk,
    Bulk,
}

struct DrrWatch {
    ring: Ring,
    pairs: Pairs,
}

impl DrrWatch {
    fn check_service(&mut self) -> Result<(), String> {
        for (i, j) in self.pairs.pairs() {
            let (a, b) = (self.pairs.books[i], self.pairs.books[j]);
            let (q_i, q_j) = (a.weight, b.weight);
            let (room_i, room_j) = (a.largest + q_i, b.largest + q_j);
            match self.ring {
                Ring::NoBulk => {
                    let most = q_i * q_j + room_i * q_j + room_j * q_i;
                    let now = a.costs * q_j - b.costs * q_i;
                    self.pairs.rises("(5) service", (i, j), now, most)?;
                }
                Ring::Bulk => {
                    let (left, right) = (2 * a.costs * q_j, 3 * b.costs * q_i);
                    let most = 2 * q_i * q_j + 3 * room_j * q_i;
                    let holds = self.pairs.nearest.holds("(7) from the start", left, right + most);
                    holds.map_err(|broken| format!("{i} over {j}: {broken}"))?;
                    let most = 5 * q_i * q_j + 3 * room_j * q_i + 2 * room_i * q_j;
                    self.pairs.rises("(8) service", (i, j), left - right, most)?;
                }
            }
        }
        Ok(())
    }

    /// Checks the waits of the other classes after a grant to j.
    fn check_wait(&mut self, j: usize) -> Result<(), String> {
        let Pairs { books, after, nearest, .. } = &mut self.pairs;
        let b = books[j];
        for (i, a) in books.iter().enumerate().filter(|(i, _)| *i != j) {
            let Some(after) = &after[i] else { continue };
            let quanta = (a.largest + a.weight - 1) / a.weight;
            let (room, q) = (b.largest + b.weight, b.weight);
            let failed = |broken| format!("{j} goes before {i}: {broken}");
            let (tokens, grants, right) = match self.ring {
                Ring::NoBulk => ("(6) tokens", "(6) grants", quanta * q + b.largest - 1),
                Ring::Bulk => ("(9) tokens", "(9) grants", (5 * q + 3 * quanta * q + 2 * room) / 2),
            };
            nearest.holds(tokens, b.costs - after[j].costs, right).map_err(failed)?;
            let left = (b.grants - after[j].grants) * b.least_cost.unwrap_or(0);
            nearest.holds(grants, left, right).map_err(failed)?;
        }
        Ok(())
    }
}

impl Watch for DrrWatch {
    fn ended(&mut self, request: Request) -> Result<(), String> {
        self.pairs.books[request.leaf].end(request);
        self.check_service()
    }

    fn granted(&mut self, request: Request) -> Result<(), String> {
        self.pairs.grant(request.leaf, request);
        self.check_service()?;
        self.check_wait(request.leaf)
    }
}

/// Draws a quantum that is at least the largest cost, or small. In a ring without bulk rounds, the
/// first class gets a quantum of at least the largest cost.
fn random_quantum(ring: Ring, first: bool, largest: u64, rng: &mut SeededRng) -> u64 {
    let enough = largest * rng.one_of(&[1, 1, 2, 10]) + rng.range(0..=3);
    let small = largest.div_ceil(rng.one_of(&[1, 2, 3, 5, 50]));
    match ring {
        Ring::NoBulk if first || rng.percent(50) => enough,
        Ring::NoBulk | Ring::Bulk => small,
    }
}

fn journal(seed: u64, ring: Ring) -> Played {
    let mut rng = SeededRng::new(seed);
    let n = rng.count(2..=6);
    let paying = rng.index(n);
    let (mut leaves, mut books, mut classes) = (Vec::new(), Vec::new(), Vec::new());
    for i in 0..n {
        let leaf = Leaf::random(Attribute::Class, &format!("c{i}"), &mut rng);
        let quantum = random_quantum(ring, i == paying, leaf.costs.1, &mut rng);
        books.push(Books::new(quantum, leaf.costs.1));
        classes.push(format!(r#"{{"name":"c{i}","quantum":{quantum}}}"#));
        leaves.push(leaf);
    }
    let policy = format!(r#"{{"drr":{{"by":"class","classes":[{}]}}}}"#, classes.join(","));
    let mut watch = DrrWatch { ring, pairs: Pairs::new(books).all_wait() };
    let mut stage = Stage::new(rng, &policy, leaves).with_slots_up_to(4);
    let all: Vec<usize> = (0..n).collect();
    let outcome = stage.start_full(&mut watch).and_then(|()| stage.run(&all, 300, &mut watch));
    played(outcome, watch.pairs.nearest, stage)
}

#[test]
fn drr_serves_costs_by_quantum() {
    run("drr", |seed| journal(seed, Ring::NoBulk));
}

#[test]
fn drr_with_small_quanta_serves_costs_by_quantum_up_to_three_halves() {
    run("drr with small quanta", |seed| journal(seed, Ring::Bulk));
}
