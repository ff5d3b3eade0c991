//! Tests of drr if a worker's slots are the limit, and of the meter of a drr node.

use fairgate_core::attribute::Attribute;
use fairgate_core::event::PoolConfig;
use fairgate_testkit::seeds::announce;
use fairgate_testkit::workload::SeededRng;

use crate::closed_loop::books::Ledger;
use crate::closed_loop::seeds;
use crate::closed_loop::sizes::{self, Sizes};
use crate::closed_loop::world::{Source, World, policy, worker};

/// Quanta 2048 and 512 at a cost of 300. A turn that a full worker interrupts goes on, so classes stay at 4 : 1: over any
/// part of the run they differ by at most 1 + (300 + 2048)/2048 + (300 + 512)/512 rounds.
#[test]
fn quanta_stay_four_to_one_where_slots_bind() {
    seeds("four to one on slots", 40, |seed| {
        let mut rng = SeededRng::new(seed);
        let slots = if seed % 4 == 1 { vec![4] } else { vec![rng.range(1..=6), rng.range(1..=6)] };
        let total: u64 = slots.iter().sum();
        let text = r#"{"drr":{"by":"class","classes":[{"name":"A","quantum":2048},{"name":"B","quantum":512}]}}"#;
        let mut config = PoolConfig::new(total + rng.range(0..=2), policy(text));
        let names = ["w0", "w1"].into_iter().zip(&slots);
        config.workers = names.map(|(name, slots)| worker(name, *slots)).collect();
        let source = |name| Source {
            waiting: 20,
            size: Some((280, 20)),
            ..Source::new(Attribute::Class, name, sizes::named("azure code"))
        };
        let mut world = World::new(config, vec![source("A"), source("B")], seed);
        let mut ledger = Ledger::new(&[2048, 512]);
        let (mut low, mut high) = (0, 0);
        let mut first = None;
        while ledger.flows[1].grants < 1000 {
            let step = world.step();
            ledger.follow(&step, &world, |flows| {
                let costs = |i: usize| i128::from(flows[i].grants) * 300;
                let ahead = costs(0) * 512 - costs(1) * 2048;
                (low, high) = (ahead.min(low), ahead.max(high));
                if first.is_none() && flows[0].grants + flows[1].grants == 50 {
                    first = Some((flows[0].grants, flows[1].grants));
                }
            });
        }
        let most = 2048 * 512 + (300 + 2048) * 512 + (300 + 512) * 2048;
        assert!(high - low <= most, "seed {seed}, slots {slots:?}: {} over {most}", high - low);
        assert_eq!(first, Some((40, 10)), "seed {seed}, slots {slots:?}");
    });
}

/// The example that the documentation had: 4096 with the cheapest first against 1024 as they came. Quanta are not
/// shares here, and the meter says so on each of the workloads. With share classes of 4 and 1 the shares hold.
#[test]
fn the_meter_shows_that_quanta_are_not_shares_and_share_keeps_them() {
    for sizes in sizes::all() {
        let classes = |what: &str, [a, b]: [u64; 2]| {
            format!(r#"[{{"name":"A","{what}":{a},"queue":"wspt"}},{{"name":"B","{what}":{b}}}]"#)
        };
        let ring = classes("quantum", [4096, 1024]);
        let ring = played(&format!(r#"{{"drr":{{"by":"class","classes":{ring}}}}}"#), sizes);
        let share = classes("weight", [4, 1]);
        let share = played(&format!(r#"{{"share":{{"by":"class","classes":{share}}}}}"#), sizes);
        announce(&format!("{}: drr {}, share {}", sizes.name, ring.told(), share.told()));
        assert!(!ring.within_bound, "{}: {ring:?}", sizes.name);
        assert!(share.within_bound, "{}: {share:?}", sizes.name);
        assert!(share.part_of_a.abs_diff(800) <= 5, "{}: {share:?}", sizes.name);
    }
}

#[derive(Debug)]
struct Played {
    /// Tokens of A, in thousandths of all tokens.
    part_of_a: u64,
    within_bound: bool,
    /// Tokens that A got, in thousandths of the tokens that it was due.
    got_of_due: i128,
}

impl Played {
    fn told(&self) -> String {
        let Self { part_of_a, got_of_due, .. } = self;
        format!("gives A {part_of_a} ‰ of all, {got_of_due} ‰ of its due")
    }
}

fn played(text: &str, sizes: &'static Sizes) -> Played {
    let source = |name| Source { waiting: 20, ..Source::new(Attribute::Class, name, sizes) };
    let config = PoolConfig::new(4, policy(text));
    let mut world = World::new(config, vec![source("A"), source("B")], 7);
    let mut ledger = Ledger::new(&[4, 1]);
    while ledger.flows.iter().any(|flow| flow.grants < 2500) {
        let step = world.step();
        ledger.follow(&step, &world, |_| {});
    }
    let fairness = world.pool.fairness();
    let flows = &fairness[0].flows;
    let due = flows[0].due.expect("it has a quantum or a weight").tokens;
    let part = ledger.flows[0].charged() * 1000 / ledger.total();
    Played {
        part_of_a: u64::try_from(part).expect("a part"),
        within_bound: flows.iter().all(|flow| flow.is_within_bound()),
        got_of_due: flows[0].got * 1000 / due,
    }
}
