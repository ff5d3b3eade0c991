//! An experiment without a gateway. The core alone, in virtual time, leaves the same evidence. The
//! tests falsify this evidence.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::fmt::Write as _;

use fairgate_core::Pool;
use fairgate_core::attribute::{Attribute, Attributes};
use fairgate_core::decision::Decision;
use fairgate_core::event::{Event, PoolConfig, Submit, WorkerChange};
use fairgate_core::units::{Micros, Tokens};
use fairgate_journal::{JournalWriter, parse_policy};
use fairgate_prove::evidence::{
    AnswerEnd, ClientResult, ExperimentEvidence, FinalCounters, JournalFile, LedgerEvidence,
};
use fairgate_prove::scenario::{JoinTime, Scenario, ScenarioLevel, ScenarioPolicy};
use fairgate_store::{
    AttemptOutcome, AttemptRow, BudgetBalance, BudgetPeriod, BudgetScope, BudgetTier, BudgetUnit,
    MicroUnits, UnixMicros, UsageRow, UsageSource,
};

/// Faults of the virtual gateway.
#[derive(Clone, Debug, Default)]
pub(crate) struct Flaws {
    /// Weights that the gateway gives to tenants in place of their own.
    pub weights: BTreeMap<&'static str, u64>,
    /// True if the gateway ignores the partition and the strict order.
    pub one_queue: bool,
    /// True if the second class goes before the first.
    pub swapped: bool,
    /// A tenant that is held, with the beginning and end in virtual microseconds after the join.
    pub hold: Option<(&'static str, u64, u64)>,
    /// Number of slots, if it differs from the scenario's.
    pub capacity: Option<u64>,
    /// Number of clients of each tenant, if it differs from the scenario's.
    pub clients: Option<usize>,
    /// Of this many requests, one fails at once and is retried on the other worker.
    pub fails_every: Option<usize>,
    /// True if queues are in order of arrival where they should be in order of deadlines.
    pub ignores_deadlines: bool,
}

/// Plays a scenario to its end, and returns its evidence.
pub(crate) fn play(scenario: &Scenario, flaws: &Flaws) -> ExperimentEvidence {
    let mut stage = Stage::new(scenario, flaws);
    stage.run();
    stage.evidence()
}

/// The next event, by time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Next {
    Ask(Client),
    End(String),
    Fail(String),
    Hold(&'static str),
    Resume(&'static str),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Client {
    tenant: usize,
    number: usize,
}

struct Sent {
    client: Client,
    cost: u64,
    used: u64,
    waited: u64,
    worker: Option<String>,
    attempt: u32,
}

struct Stage<'a> {
    scenario: &'a Scenario,
    flaws: &'a Flaws,
    pool: Pool,
    journal: JournalWriter<Vec<u8>>,
    files: Vec<JournalFile>,
    agenda: BinaryHeap<Reverse<(u64, u64, Next)>>,
    events: u64,
    requests: HashMap<String, Sent>,
    sightings: Vec<ClientResult>,
    rows: Vec<AttemptRow>,
    ended: Vec<u64>,
    joined: Option<u64>,
}

const EVENTS_PER_FILE: u64 = 250;

/// Returns a policy of bands by tenant. Each class has one tenant, so the order is the same.
fn bands(scenario: &Scenario, caps: &[u64], swapped: bool) -> String {
    let class = |(i, name): (usize, &str)| match caps.get(i) {
        Some(cap) => format!(r#"{{"name":"{name}","cap":{cap}}}"#),
        None => format!(r#"{{"name":"{name}"}}"#),
    };
    let names = scenario.tenants.iter().map(|tenant| tenant.name);
    let mut classes: Vec<String> = names.enumerate().map(class).collect();
    if swapped {
        classes.swap(0, 1);
    }
    format!(r#"{{"bands":{{"by":"tenant","classes":[{}]}}}}"#, classes.join(","))
}

impl<'a> Stage<'a> {
    fn new(scenario: &'a Scenario, flaws: &'a Flaws) -> Self {
        let weight = |name: &'static str, own: u64| flaws.weights.get(name).copied().unwrap_or(own);
        let mut listed = String::new();
        for tenant in &scenario.tenants {
            let name =
                if scenario.level == ScenarioLevel::Groups { tenant.group } else { tenant.name };
            let comma = if listed.is_empty() { "" } else { "," };
            let weight = weight(tenant.name, tenant.weight);
            write!(listed, r#"{comma}"{name}":{weight}"#).unwrap();
        }
        let (groups, tenants) = match scenario.level {
            ScenarioLevel::Groups => (listed.as_str(), ""),
            ScenarioLevel::Tenants => ("", listed.as_str()),
        };
        let partition = scenario.policy.is_partition() && !flaws.one_queue;
        let by_tenant = format!(r#"{{"share":{{"by":"tenant","weights":{{{tenants}}}}}}}"#);
        let policy = format!(
            r#"{{"share":{{"by":"group","partition":{partition},"weights":{{{groups}}},"inside":
               {{"share":{{"by":"tenant","weights":{{{tenants}}},"inside":{{"share":{{"by":"key"}}}}}}}}}}}}"#
        );
        // Each class has one tenant, so the classes of a policy file share as these do.
        let is_file = matches!(scenario.policy, ScenarioPolicy::Classes { .. });
        let edf = |order: &str| format!(r#"{{"share":{{"by":"group","queue":"{order}"}}}}"#);
        let policy = match scenario.policy {
            ScenarioPolicy::Bands { caps } if !flaws.one_queue => {
                bands(scenario, caps, flaws.swapped)
            }
            ScenarioPolicy::Bands { .. } => by_tenant,
            ScenarioPolicy::Edf if flaws.ignores_deadlines => edf("fcfs"),
            ScenarioPolicy::Edf => edf("edf"),
            _ if is_file => by_tenant,
            _ => policy,
        };
        let capacity = flaws.capacity.unwrap_or(scenario.capacity);
        let mut config = PoolConfig::new(capacity, parse_policy(&policy).unwrap());
        config.workers = (scenario.backend.workers.iter())
            .map(|(name, slots)| WorkerChange {
                name: (*name).into(),
                slots: Some(*slots),
                ..WorkerChange::default()
            })
            .collect();
        let mut journal = JournalWriter::new(Vec::new());
        journal.write_header(&config).unwrap();
        let mut stage = Self {
            scenario,
            flaws,
            pool: Pool::new(config),
            journal,
            files: Vec::new(),
            agenda: BinaryHeap::new(),
            events: 0,
            requests: HashMap::new(),
            sightings: Vec::new(),
            rows: Vec::new(),
            ended: vec![0; scenario.tenants.len()],
            joined: None,
        };
        stage.come(JoinTime::First, 0);
        stage
    }

    fn come(&mut self, joins: JoinTime, at: u64) {
        for (tenant, plan) in self.scenario.tenants.iter().enumerate() {
            if plan.joins == joins {
                for number in 0..self.flaws.clients.unwrap_or(plan.clients) {
                    self.at(at, Next::Ask(Client { tenant, number }));
                }
            }
        }
    }

    fn at(&mut self, at: u64, next: Next) {
        let order = self.agenda.len() as u64 + self.events;
        self.agenda.push(Reverse((at, order, next)));
    }

    fn run(&mut self) {
        let alone = u64::try_from(self.scenario.length.alone.as_micros()).unwrap();
        while let Some(Reverse((at, _, next))) = self.agenda.pop() {
            if self.joined.is_none() && at >= alone {
                self.joined = Some(at);
                self.come(JoinTime::AtSaturation, at);
                if let Some((name, from, until)) = self.flaws.hold {
                    self.at(at + from, Next::Hold(name));
                    self.at(at + until, Next::Resume(name));
                }
            }
            match next {
                Next::Ask(client) => self.pattern(at, client),
                Next::End(id) => self.end(at, &id),
                Next::Fail(id) => self.fail(at, &id),
                Next::Hold(name) => self.tell(at, hold(name, true)),
                Next::Resume(name) => self.tell(at, hold(name, false)),
            }
        }
    }

    fn pattern(&mut self, at: u64, client: Client) {
        let enough = |ended: &u64| *ended >= self.scenario.length.grants_min + 20;
        if self.joined.is_some() && self.ended.iter().all(enough) {
            return;
        }
        let plan = &self.scenario.tenants[client.tenant];
        let id = format!("r{}", self.requests.len());
        let (least, most) = plan.pattern.output_tokens;
        let output = least + (self.requests.len() as u64 * 7) % (most - least + 1);
        let output = plan.pattern.leaves_after().unwrap_or(output);
        let cost = plan.pattern.prompt_tokens + (least + most) / 2;
        let used = plan.pattern.prompt_tokens + output;
        self.requests
            .insert(id.clone(), Sent { client, cost, used, waited: 0, worker: None, attempt: 1 });
        let submit = self.submit(&id);
        self.tell(at, Event::Submit(Box::new(submit)));
    }

    fn submit(&self, id: &str) -> Submit {
        let Sent { client, cost, .. } = self.requests[id];
        let plan = &self.scenario.tenants[client.tenant];
        let mut submit = Submit::new(id);
        submit.cost = Some(Tokens(cost));
        submit.attributes = Attributes::none()
            .with(Attribute::Group, plan.group)
            .with(Attribute::Tenant, plan.name)
            .with(Attribute::Key, &format!("key-{}-{}", plan.name, client.number % plan.keys));
        let deadline_ms = plan.pattern.deadline_ms(client.number);
        submit.timeout = deadline_ms.map(|millis| Micros(millis * 1000));
        if let Some(class) = plan.class {
            submit.attributes = submit.attributes.with(Attribute::Class, class);
        }
        submit
    }

    /// Fails a request without usage, and retries it on the other worker.
    fn fail(&mut self, at: u64, id: &str) {
        let row = AttemptRow {
            last: false,
            charged: 0,
            input_tokens: 0,
            output_tokens: 0,
            outcome: AttemptOutcome::Retried,
            usage: UsageSource::None,
            ..self.row(id)
        };
        self.rows.push(row);
        let sent = self.requests.get_mut(id).unwrap();
        sent.attempt += 1;
        let failed = sent.worker.take();
        self.tell(at, Event::Release { id: id.into(), tokens: Some(Tokens(0)), quota: None });
        let mut submit = self.submit(id);
        let workers = self.scenario.backend.workers.iter().map(|(name, _)| *name);
        let others = workers.filter(|name| failed.as_deref() != Some(name));
        submit.allow = Some(others.map(Into::into).collect());
        submit.priority = 1;
        self.tell(at, Event::Submit(Box::new(submit)));
    }

    fn end(&mut self, at: u64, id: &str) {
        let Sent { client, used, .. } = self.requests[id];
        let row = self.row(id);
        let end = match row.outcome {
            AttemptOutcome::ClientLeft => AnswerEnd::Left,
            _ => AnswerEnd::Completed { input: row.input_tokens, output: row.output_tokens },
        };
        self.sightings.push(ClientResult { tenant: client.tenant, request: Some(id.into()), end });
        self.rows.push(row);
        self.ended[client.tenant] += u64::from(self.joined.is_some());
        self.tell(at, Event::Release { id: id.into(), tokens: Some(Tokens(used)), quota: None });
        self.at(at + 300, Next::Ask(client));
    }

    /// Expires a request at its deadline.
    fn expire(&mut self, at: u64, id: &str) {
        let client = self.requests[id].client;
        let code = "deadline_passed".to_owned();
        let end = AnswerEnd::Failed { status: Some(504), how: code.clone() };
        self.sightings.push(ClientResult { tenant: client.tenant, request: Some(id.into()), end });
        let row = AttemptRow {
            charged: 0,
            input_tokens: 0,
            output_tokens: 0,
            provider_tokens: 0,
            outcome: AttemptOutcome::Refused,
            usage: UsageSource::None,
            status: 504,
            code: Some(code),
            worker: None,
            ..self.row(id)
        };
        self.rows.push(row);
        self.at(at + 300, Next::Ask(client));
    }

    /// Returns the ledger row of a request that ends now.
    fn row(&self, id: &str) -> AttemptRow {
        let Sent { client, cost, used, waited, ref worker, attempt } = self.requests[id];
        let plan = &self.scenario.tenants[client.tenant];
        let (outcome, status, usage) = match plan.pattern.leaves_after() {
            Some(_) => (AttemptOutcome::ClientLeft, 499, UsageSource::Counted),
            None => (AttemptOutcome::Completed, 200, UsageSource::Reported),
        };
        AttemptRow {
            request: id.into(),
            attempt,
            last: true,
            started_at: UnixMicros(0),
            group: plan.group.into(),
            tenant: plan.name.into(),
            key: "key".into(),
            agent: None,
            session: None,
            route: "/v1/chat/completions".into(),
            stream: false,
            model: "sim".into(),
            pool: Some("sim".into()),
            worker: worker.clone(),
            estimate: cost,
            input_tokens: plan.pattern.prompt_tokens,
            cached_tokens: 0,
            output_tokens: used - plan.pattern.prompt_tokens,
            charged: used,
            usage,
            waited_us: waited,
            first_token_us: None,
            total_us: 0,
            status,
            outcome,
            code: None,
            brownout: false,
            occupied: 0,
            provider_tokens: used,
            money: MicroUnits::ZERO,
            price: None,
            tier: 0,
            class: None,
            cache_written_tokens: 0,
            cache_written_1h_tokens: 0,
            estimate_uncached: 0,
            charged_uncached: 0,
            worker_us: 0,
            price_set: None,
            claim: None,
        }
    }

    fn tell(&mut self, at: u64, event: Event) {
        self.events += 1;
        if self.events.is_multiple_of(EVENTS_PER_FILE) {
            self.cut();
        }
        self.journal.write_event(Micros(at), &event).unwrap();
        let mut decisions = Vec::new();
        self.pool.apply(Micros(at), event, &mut decisions).unwrap();
        for decision in decisions {
            let grant = match decision {
                Decision::Grant(grant) => grant,
                Decision::Expire { id, .. } => {
                    self.expire(at, &id);
                    continue;
                }
                Decision::Reject(_) => panic!("{decision:?}"),
            };
            let sent = self.requests.get_mut(grant.id.as_ref()).unwrap();
            sent.waited += grant.waited.0;
            sent.worker = grant.place.map(|place| place.worker.to_string());
            let takes =
                4000 + sent.used * 1500 / 8 + u64::try_from(sent.client.number).unwrap() * 7;
            let number: usize = grant.id[1..].parse().unwrap();
            let fails = |every| sent.attempt == 1 && number.is_multiple_of(every);
            match self.flaws.fails_every.is_some_and(fails) {
                true => self.at(at + 1500, Next::Fail(grant.id.to_string())),
                false => self.at(at + takes, Next::End(grant.id.to_string())),
            }
        }
    }

    fn cut(&mut self) {
        let mut next = JournalWriter::new(Vec::new());
        next.write_snapshot(&self.pool.snapshot()).unwrap();
        let bytes = std::mem::replace(&mut self.journal, next).into_inner();
        self.files.push(JournalFile { name: format!("{:08}", self.files.len()), bytes });
    }

    fn evidence(mut self) -> ExperimentEvidence {
        self.cut();
        let names = || self.scenario.tenants.iter().map(|tenant| tenant.name);
        let sums = names().map(|name| (name.to_owned(), sums(&self.rows, name))).collect();
        let budgets =
            names().map(|name| (name.to_owned(), vec![budget(&self.rows, name)])).collect();
        ExperimentEvidence {
            journal: self.files,
            last_snapshot: Some(self.pool.snapshot()),
            ledger: LedgerEvidence { rows: self.rows, sums, budgets, reservations_left: 0 },
            results: self.sightings,
            final_counters: FinalCounters::default(),
            provider: None,
            second: None,
        }
    }
}

fn hold(name: &str, held: bool) -> Event {
    let (by, flow) = (Attribute::Tenant, name.into());
    if held { Event::Hold { by, flow } } else { Event::Resume { by, flow } }
}

fn sums(rows: &[AttemptRow], tenant: &str) -> Vec<UsageRow> {
    let of = |outcome, name: &str| {
        let rows: Vec<_> =
            rows.iter().filter(|row| row.tenant == tenant && row.outcome == outcome).collect();
        UsageRow {
            name: name.into(),
            split: None,
            requests: rows.len() as u64,
            failed: 0,
            input_tokens: rows.iter().map(|row| row.input_tokens).sum(),
            cached_tokens: 0,
            output_tokens: rows.iter().map(|row| row.output_tokens).sum(),
            charged: rows.iter().map(|row| row.charged).sum(),
            provider_tokens: rows.iter().map(|row| row.provider_tokens).sum(),
            worker_us: rows.iter().map(|row| row.worker_us).sum(),
            money: MicroUnits::ZERO,
            waited_us_mean: 0,
            waited_us_p50: None,
            waited_us_p95: None,
            waited_us_max: 0,
            first_token_us_mean: None,
        }
    };
    let all = [
        of(AttemptOutcome::Completed, "completed"),
        of(AttemptOutcome::ClientLeft, "client_left"),
        of(AttemptOutcome::Refused, "refused"),
    ];
    all.into_iter().filter(|row| row.requests > 0).collect()
}

fn budget(rows: &[AttemptRow], tenant: &str) -> BudgetBalance {
    BudgetBalance {
        scope: BudgetScope::Tenant,
        owner: tenant.to_owned(),
        period: BudgetPeriod::Day,
        unit: BudgetUnit::Tokens,
        tier: BudgetTier::Any,
        limit: u64::MAX,
        used: rows.iter().filter(|row| row.tenant == tenant).map(|row| row.provider_tokens).sum(),
        reserved: 0,
        resets_at: UnixMicros(0),
    }
}
