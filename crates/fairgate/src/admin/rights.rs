//! Command-line options for the rights of keys and projects, which have the same rights, and the columns of tables that
//! show these rights.

use clap::Args;
use fairgate_api::{RightsBody, RightsPatchBody, WeightNumber};
use fairgate_table::TableCell;

use super::{names, or_dash};

/// Rights to set. Rights that are not given stay as they are.
#[derive(Debug, Args)]
pub(super) struct RightsArgs {
    /// Models that requests may name. A * at the end of a name stands for any ending, such as gpt-*. Default: all.
    #[arg(long, value_delimiter = ',', value_name = "MODEL,…")]
    models: Option<Vec<String>>,
    /// Remove the list of models. Requests may then name all models.
    #[arg(long, conflicts_with = "models")]
    all_models: bool,
    /// Policy classes and families that requests may name. A request that names none gets the first one. An empty list
    /// (""), which is the default, means the policy's default class only.
    #[arg(long, value_delimiter = ',', value_name = "CLASS,…")]
    classes: Option<Vec<String>>,
    /// Allow requests to name all classes and families of the policy, or only the default class if classes have a
    /// strict order (`bands`).
    #[arg(long, conflicts_with = "classes")]
    all_classes: bool,
    /// Highest priority that requests may ask for. Default: 0. Lower priorities are always allowed.
    #[arg(long, value_name = "PRIORITY")]
    priority_max: Option<u32>,
    /// Highest weight that requests may state for a load node, such as 5 or 2.5. Default: the weight of their model.
    #[arg(long, value_name = "WEIGHT", value_parser = weight)]
    weight_max: Option<WeightNumber>,
    /// Remove the highest weight. Requests may then state weights up to that of their model.
    #[arg(long, conflicts_with = "weight_max")]
    no_weight_max: bool,
    /// Workers that requests may go to. Default: all.
    #[arg(long, value_delimiter = ',', value_name = "WORKER,…")]
    workers: Option<Vec<String>>,
    /// Remove the list of workers. Requests may then go to all workers.
    #[arg(long, conflicts_with = "workers")]
    all_workers: bool,
    /// True to allow requests to choose their worker, or a list of workers. Default: false.
    #[arg(long, value_name = "true|false")]
    may_pin: Option<bool>,
    /// True to allow leases. Default: false.
    #[arg(long, value_name = "true|false")]
    may_lease: Option<bool>,
    /// True to allow requests to name files, vector stores, containers and stored prompts of the upstream's account, whose
    /// owner the gateway does not know. Default: false.
    #[arg(long, value_name = "true|false")]
    may_use_foreign_ids: Option<bool>,
    /// Taints that requests may require of a worker. Default: none.
    #[arg(long, value_delimiter = ',', value_name = "TAINT,…")]
    taints: Option<Vec<String>>,
    /// Allow requests to require any taint.
    #[arg(long, conflicts_with = "taints")]
    all_taints: bool,
    /// Longest wait of requests that state no deadline, such as 5s or 750ms. Default: the longest wait of the request's
    /// class.
    #[arg(long, value_name = "TIME", value_parser = deadline)]
    deadline: Option<DeadlineArg>,
    /// Remove the deadline. Requests may then wait as long as their class allows.
    #[arg(long, conflicts_with = "deadline")]
    no_deadline: bool,
    /// Shortest deadline that requests may state in an edf queue, such as 500ms. Default: the deadline that a request
    /// gets if it states none.
    #[arg(long, value_name = "TIME", value_parser = deadline)]
    deadline_min: Option<DeadlineArg>,
    /// Remove the shortest deadline. In an edf queue, the shortest deadline that a request may state is then the one that
    /// it gets if it states none.
    #[arg(long, conflicts_with = "deadline_min")]
    no_deadline_min: bool,
}

impl RightsArgs {
    /// Returns the rights that were given.
    pub(super) fn patch(&self) -> RightsPatchBody {
        RightsPatchBody {
            models: list_or_all(self.models.as_deref(), self.all_models),
            classes: list_or_all(self.classes.as_deref(), self.all_classes),
            priority_max: self.priority_max.map(i64::from),
            weight_max: if self.no_weight_max { Some(None) } else { self.weight_max.map(Some) },
            workers: list_or_all(self.workers.as_deref(), self.all_workers),
            may_pin: self.may_pin,
            may_lease: self.may_lease,
            may_use_foreign_ids: self.may_use_foreign_ids,
            taints: list_or_all(self.taints.as_deref(), self.all_taints),
            deadline_ms: time_or_none(self.deadline, self.no_deadline),
            deadline_min_ms: time_or_none(self.deadline_min, self.no_deadline_min),
        }
    }
}

/// Parses a weight such as `5` or `2.5`.
fn weight(text: &str) -> Result<WeightNumber, String> {
    let thousandths = fairgate_config::parse_thousandths(text);
    thousandths.and_then(WeightNumber::from_thousandths).ok_or_else(|| {
        "must be a number from 0.001 to 1000000 with at most three decimals".to_owned()
    })
}

/// A time span in milliseconds.
#[derive(Clone, Copy, Debug)]
struct DeadlineArg(u64);

/// Parses a time span such as `5s`, `2.5s` or `750ms`.
fn deadline(text: &str) -> Result<DeadlineArg, String> {
    let time = fairgate_config::parse_deadline(text);
    let millis = time.and_then(|time| u64::try_from(time.as_millis()).ok());
    millis.map(DeadlineArg).ok_or_else(|| fairgate_config::DEADLINE_FORMS.to_owned())
}

/// Returns a time in milliseconds, `Some(None)` if the option for no time was given, or `None` if neither option was
/// given.
fn time_or_none(time: Option<DeadlineArg>, none: bool) -> Option<Option<u64>> {
    if none { Some(None) } else { time.map(|DeadlineArg(millis)| Some(millis)) }
}

/// Returns a list of names (`""` is the empty list), `Some(None)` if the option for all names was given, or `None` if
/// neither option was given.
fn list_or_all(list: Option<&[String]>, all: bool) -> Option<Option<Vec<String>>> {
    let named = |list: &[String]| list.iter().filter(|name| !name.is_empty()).cloned().collect();
    if all { Some(None) } else { list.map(|list| Some(named(list))) }
}

/// Headings of the columns that [`wide_cells`] fills.
pub(super) const WIDE_HEADINGS: [&str; 11] = [
    "models",
    "classes",
    "priority",
    "weight",
    "workers",
    "pins",
    "leases",
    "foreign ids",
    "taints",
    "deadline",
    "deadline from",
];

/// Returns all rights of a key or project, in one cell each.
pub(super) fn wide_cells(rights: &RightsBody) -> [TableCell; 11] {
    let flag = |is_set: bool| if is_set { "yes" } else { "no" }.to_owned();
    let millis = |time: Option<u64>| or_dash(time.map(|millis| format!("{millis} ms")));
    [
        names_or_all(rights.models.as_deref()),
        classes(rights),
        rights.priority_max.to_string(),
        or_dash(rights.weight_max),
        names_or_all(rights.workers.as_deref()),
        flag(rights.may_pin),
        flag(rights.may_lease),
        flag(rights.may_use_foreign_ids),
        names_or_all(rights.taints.as_deref()),
        millis(rights.deadline_ms),
        millis(rights.deadline_min_ms),
    ]
    .map(TableCell::Text)
}

/// Formats a list of names, or `all` or `none`.
pub(super) fn names_or_all(list: Option<&[String]>) -> String {
    match list {
        None => "all".to_owned(),
        Some([]) => "none".to_owned(),
        Some(list) => names(list),
    }
}

/// Formats the classes of a key or project, or `all` or `default`.
pub(super) fn classes(rights: &RightsBody) -> String {
    match rights.classes.as_deref() {
        Some([]) => "default".to_owned(),
        classes => names_or_all(classes),
    }
}

/// Lists the rights besides models and classes in few words, such as `priority 5, pins, leases, taints eu, deadline 5000
/// ms`.
pub(super) fn summary(rights: &RightsBody) -> String {
    let mut told = Vec::new();
    if rights.priority_max > 0 {
        told.push(format!("priority {}", rights.priority_max));
    }
    let flags = [
        (rights.may_pin, "pins"),
        (rights.may_lease, "leases"),
        (rights.may_use_foreign_ids, "foreign ids"),
    ];
    told.extend(flags.iter().filter(|(is_set, _)| *is_set).map(|(_, words)| (*words).to_owned()));
    told.extend(rights.weight_max.map(|weight| format!("weight {weight}")));
    if rights.workers.is_some() {
        told.push(format!("workers {}", names_or_all(rights.workers.as_deref())));
    }
    match rights.taints.as_deref() {
        None => told.push("all taints".to_owned()),
        Some([]) => {}
        Some(taints) => told.push(format!("taints {}", names(taints))),
    }
    let deadlines = [("deadline", rights.deadline_ms), ("deadline from", rights.deadline_min_ms)];
    told.extend(deadlines.iter().filter_map(|(words, ms)| Some(format!("{words} {} ms", (*ms)?))));
    if told.is_empty() { "-".to_owned() } else { told.join(", ") }
}
