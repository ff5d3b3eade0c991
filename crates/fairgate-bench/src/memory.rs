//! Memory per waiting request beyond the request's texts, measured with a million waiting requests.
//!
//! Each case runs in its own process. The allocator counts the bytes that the pool allocated. The
//! system reports the resident bytes, which include the allocator's overhead.

use std::process::Command;
use std::{env, fs};

use anyhow::{Context, Result, ensure};
use fairgate_core::Pool;
use fairgate_core::attribute::{Attribute, Attributes};
use fairgate_core::decision::Decision;
use fairgate_core::event::{Event, PoolConfig, Submit};
use fairgate_core::policy::Policy;
use fairgate_core::units::{Micros, Tokens};

use crate::{allocation, prefix, scenarios};

const WAITING: u64 = 1_000_000;

/// A kind of pool to fill with waiting requests.
pub(crate) struct MemoryCase {
    pub(crate) name: &'static str,
    pub(crate) what: &'static str,
    policy: fn() -> Policy,
    by: Attribute,
    flows: u64,
    /// True if the case must stay below the bar on bytes per request.
    pub(crate) barred: bool,
}

/// All memory cases, in the order of the table.
pub(crate) const CASES: &[MemoryCase] = &[
    MemoryCase {
        name: "queue",
        what: "a waiting request in one fcfs queue",
        policy: || scenarios::drr(1),
        by: Attribute::Class,
        flows: 1,
        barred: true,
    },
    MemoryCase {
        name: "share",
        what: "a waiting request, share of 1 000 tenants",
        policy: scenarios::tenants_of_equal_weight,
        by: Attribute::Tenant,
        flows: 1000,
        barred: true,
    },
    MemoryCase {
        name: "load",
        what: "a waiting request, load of 1 000 agents",
        policy: scenarios::balanced_load,
        by: Attribute::Agent,
        flows: 1000,
        barred: true,
    },
    MemoryCase {
        name: "flows",
        what: "a waiting request that is a tenant's only one",
        policy: scenarios::tenants_of_equal_weight,
        by: Attribute::Tenant,
        flows: WAITING,
        barred: false,
    },
];

/// Numbers of bytes per waiting request, as the mean over a million requests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BytesPerRequest {
    /// Number of bytes of the request's id and attributes.
    pub(crate) texts: f64,
    /// Number of allocated bytes, without the bytes of the request's id and attributes.
    pub(crate) asked: f64,
    /// Number of bytes of resident memory, without the bytes of the request's id and attributes.
    pub(crate) resident: f64,
}

/// Starts a new process that fills the pool of a case, and returns the bytes per request that it
/// prints.
pub(crate) fn measure(case: &str) -> Result<BytesPerRequest> {
    let output = Command::new(env::current_exe()?).args(["memory", case]).output()?;
    let text = String::from_utf8(output.stdout)?;
    ensure!(
        output.status.success(),
        "memory of {case}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let mut numbers = text.split_whitespace().map(str::parse::<f64>);
    let mut next = || numbers.next().context("three numbers")?.context("a number");
    Ok(BytesPerRequest { texts: next()?, asked: next()?, resident: next()? })
}

/// Name of the case that fills the prefix index. The blocks of a prompt have no texts, so the case
/// reports 0 for them.
pub(crate) const PREFIX_INDEX: &str = "prefix-index";

/// Fills the pool of a case in this process. Returns three numbers of bytes per request: texts,
/// allocated beyond the texts, and resident beyond the texts.
pub(crate) fn fill(case: &str) -> Result<[f64; 3]> {
    if case == PREFIX_INDEX {
        return fill_index();
    }
    let case = CASES.iter().find(|c| c.name == case).context("no such case")?;
    let mut texts = 0;
    let before = resident_bytes()?;
    allocation::start_counting();
    let mut pool = Pool::new(PoolConfig::new(0, (case.policy)()));
    let mut decisions = Vec::new();
    for number in 0..WAITING {
        let (id, flow) =
            (format!("request-{number:08}"), format!("flow-{:06}", number % case.flows));
        texts += id.len() + flow.len();
        let attributes = Attributes::none().with(case.by, &flow);
        let submit = Submit { attributes, cost: Some(Tokens(number % 1000)), ..Submit::new(&id) };
        pool.apply(Micros(number), Event::Submit(Box::new(submit)), &mut decisions)?;
    }
    ensure!(pool.waiting() == WAITING && decisions.is_empty(), "all of them wait");
    let (asked, after) = (allocation::live_bytes(), resident_bytes()?);
    let texts = texts as u64;
    let each = |bytes: u64| bytes as f64 / WAITING as f64;
    Ok([
        each(texts),
        each(asked.saturating_sub(texts)),
        each((after - before).saturating_sub(texts)),
    ])
}

fn fill_index() -> Result<[f64; 3]> {
    let before = resident_bytes()?;
    allocation::start_counting();
    let index = prefix::fill();
    ensure!(index.blocks() == prefix::BLOCKS, "it is full");
    let each = |bytes: u64| bytes as f64 / prefix::BLOCKS as f64;
    Ok([0.0, each(allocation::live_bytes()), each(resident_bytes()? - before)])
}

/// Title of the table's row with the result of [`sessions`].
pub(crate) const SESSIONS: &str = "live memory after n requests, each of a session that came once";

/// Returns the bytes that a pool takes after one million and after ten million requests. The pool
/// shares by session. Each request is submitted, granted and released under a new session name,
/// while one other session stays in use.
pub(crate) fn sessions() -> Result<[f64; 2]> {
    allocation::start_counting();
    let mut pool = Pool::new(PoolConfig::new(4, scenarios::sessions_of_equal_weight()));
    let mut held = [0.0; 2];
    let mut decisions = Vec::new();
    for number in 0..10 * WAITING {
        for (id, session) in [
            (format!("once-{number}"), format!("session-{number}")),
            (format!("steady-{number}"), "steady".into()),
        ] {
            let attributes = Attributes::none().with(Attribute::Session, &session);
            let cost = Some(Tokens(1 + number % 1000));
            let submit = Submit { attributes, cost, ..Submit::new(&id) };
            pool.apply(Micros(number), Event::Submit(Box::new(submit)), &mut decisions)?;
        }
        while pool.in_flight() == pool.capacity() {
            release_first(&mut pool, &mut decisions, number)?;
        }
        if number + 1 == WAITING || number + 1 == 10 * WAITING {
            held[usize::from(number + 1 > WAITING)] = allocation::live_bytes() as f64;
        }
    }
    Ok(held)
}

/// Releases the oldest of the granted requests.
fn release_first(pool: &mut Pool, granted: &mut Vec<Decision>, now: u64) -> Result<()> {
    ensure!(!granted.is_empty(), "something is in flight");
    let Decision::Grant(grant) = granted.remove(0) else { anyhow::bail!("only grants") };
    let event = Event::Release { id: grant.id, tokens: Some(grant.cost), quota: None };
    Ok(pool.apply(Micros(now), event, granted)?)
}

fn resident_bytes() -> Result<u64> {
    let status = fs::read_to_string("/proc/self/status").context("the system does not tell")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kibibytes = line.and_then(|line| line.trim().strip_suffix(" kB"));
    Ok(kibibytes.context("no VmRSS")?.parse::<u64>()? * 1024)
}
