//! Forms of settings that differ from serde's: sizes and fractions as the file spells them, sections that are on or
//! off, secrets, and whether a reload can change a setting.
//!
//! Marks are entries whose names begin with NUL, which no name in a configuration has.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use fairgate_core::policy::Policy;
use fairgate_core::units::OverlapCredit;
use fairgate_journal::format_policy;
use fairgate_money::{ModelPrices, PerMillion, Price, PriceRates};
use fairgate_price::worker_time::WorkerPrices;
use serde::{Serialize, Serializer};

use super::{BrownoutConfig, HostedBudget, ModelConfig, QuotaConfig, UpstreamDialects};
use crate::classes::{ClassBucket, ClassCell, PolicyClasses};
use crate::field_rules::{FieldRule, FieldRules};
use crate::values::{format_size, format_thousandths};

/// Name of the entry that marks a value which needs a restart to change.
pub(crate) const FIXED: &str = "\0fixed";
/// Name of the entry that marks a value which a reload changes, although the section around it is fixed.
pub(crate) const RELOADABLE: &str = "\0reloadable";
/// Name of the entry that marks a secret; its value is the hash of the secret.
pub(crate) const SECRET: &str = "\0secret";
/// Name of the entry with the source of a secret.
pub(crate) const SECRET_SOURCE: &str = "source";

/// A setting and everything below it, with the mark that says whether a reload changes it.
#[derive(Serialize)]
enum MarkedSetting<T> {
    #[serde(rename = "\0fixed")]
    Fixed(T),
    #[serde(rename = "\0reloadable")]
    Reloadable(T),
}

/// A section that may be absent. Its own value, under the empty name, says whether it is on.
#[derive(Serialize)]
struct SwitchedSection<'a, V, T> {
    #[serde(rename = "")]
    state: V,
    #[serde(flatten)]
    inside: Option<&'a T>,
}

/// A secret in the form in which it may be written: its source, and a hash for comparison.
#[derive(Serialize)]
pub(super) struct HiddenText<'a> {
    #[serde(rename = "\0secret")]
    hash: u64,
    source: Option<&'a str>,
}

impl<'a> HiddenText<'a> {
    pub(super) fn new(text: &str, source: Option<&'a str>) -> Self {
        static HASH_KEY: OnceLock<RandomState> = OnceLock::new();
        Self { hash: HASH_KEY.get_or_init(RandomState::new).hash_one(text), source }
    }
}

fn on_or_off<T>(section: &Option<T>) -> &'static str {
    if section.is_some() { "on" } else { "off" }
}

pub(super) fn fixed<T: Serialize, S: Serializer>(value: &T, out: S) -> Result<S::Ok, S::Error> {
    MarkedSetting::Fixed(value).serialize(out)
}

pub(super) fn reloadable<T: Serialize, S: Serializer>(
    value: &T,
    out: S,
) -> Result<S::Ok, S::Error> {
    MarkedSetting::Reloadable(value).serialize(out)
}

/// Writes a section that a reload can switch on and off.
pub(super) fn switch<T: Serialize, S: Serializer>(
    section: &Option<T>,
    out: S,
) -> Result<S::Ok, S::Error> {
    SwitchedSection { state: on_or_off(section), inside: section.as_ref() }.serialize(out)
}

/// Writes a section whose settings a reload can change. A restart is needed to switch the section
/// on or off.
pub(super) fn fixed_switch<T: Serialize, S: Serializer>(
    section: &Option<T>,
    out: S,
) -> Result<S::Ok, S::Error> {
    let state = MarkedSetting::Fixed(on_or_off(section));
    SwitchedSection { state, inside: section.as_ref() }.serialize(out)
}

/// Writes a section that needs a restart to change.
pub(super) fn fixed_section<T: Serialize, S: Serializer>(
    section: &Option<T>,
    out: S,
) -> Result<S::Ok, S::Error> {
    let form = SwitchedSection { state: on_or_off(section), inside: section.as_ref() };
    MarkedSetting::Fixed(form).serialize(out)
}

pub(super) fn displayed<T: Display, S: Serializer>(value: &T, out: S) -> Result<S::Ok, S::Error> {
    out.collect_str(value)
}

/// Writes a path. Bytes that are not Unicode become replacement characters; serde would fail at
/// them.
pub(super) fn path<S: Serializer>(path: &Path, out: S) -> Result<S::Ok, S::Error> {
    out.collect_str(&path.display())
}

pub(super) fn optional_path<S: Serializer>(
    path: &Option<PathBuf>,
    out: S,
) -> Result<S::Ok, S::Error> {
    path.as_ref().map(|path| path.display().to_string()).serialize(out)
}

pub(super) fn fixed_path<S: Serializer>(path: &Path, out: S) -> Result<S::Ok, S::Error> {
    MarkedSetting::Fixed(path.display().to_string()).serialize(out)
}

/// Writes a number of bytes, such as `64MiB`.
pub(super) fn size<S: Serializer>(
    bytes: &(impl Copy + Into<u64>),
    out: S,
) -> Result<S::Ok, S::Error> {
    out.serialize_str(&format_size((*bytes).into()))
}

/// Writes thousandths, which may be absent, as a decimal.
pub(super) fn thousandths<S: Serializer>(
    thousandths: &(impl Copy + Into<Option<u64>>),
    out: S,
) -> Result<S::Ok, S::Error> {
    let thousandths: Option<u64> = (*thousandths).into();
    thousandths.map(format_thousandths).serialize(out)
}

/// Writes the overlap credit as a setting that needs a restart. The credit is in the header of the
/// pool's journal, and no event changes it. The same holds for `max_queue` and the wait of a
/// brownout.
pub(super) fn overlap_credit<S: Serializer>(
    credit: &OverlapCredit,
    out: S,
) -> Result<S::Ok, S::Error> {
    MarkedSetting::Fixed(format_thousandths(credit.thousandths().into())).serialize(out)
}

pub(super) fn brownout<S: Serializer>(
    brownout: &Option<BrownoutConfig>,
    out: S,
) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct BrownoutForm<W> {
        wait: W,
        #[serde(skip_serializing_if = "Option::is_none")]
        max_tokens: Option<u64>,
    }
    let wait = MarkedSetting::Fixed(brownout.map(|brownout| brownout.wait));
    BrownoutForm { wait, max_tokens: brownout.map(|brownout| brownout.max_tokens) }.serialize(out)
}

pub(super) fn is_set<T, S: Serializer>(value: &Option<T>, out: S) -> Result<S::Ok, S::Error> {
    out.serialize_bool(value.is_some())
}

pub(super) fn allow_or_refuse<S: Serializer>(allow: &bool, out: S) -> Result<S::Ok, S::Error> {
    out.serialize_str(if *allow { "allow" } else { "refuse" })
}

/// Writes a list as one text. Without this form, an empty list would have no value.
pub(super) fn joined<S: Serializer>(texts: &[String], out: S) -> Result<S::Ok, S::Error> {
    out.serialize_str(&texts.join(", "))
}

pub(super) fn dialects<S: Serializer>(
    dialects: &UpstreamDialects,
    out: S,
) -> Result<S::Ok, S::Error> {
    let UpstreamDialects { openai, anthropic } = *dialects;
    let spoken = [("openai", openai), ("anthropic", anthropic)].into_iter();
    out.collect_seq(spoken.filter(|(_, speaks)| *speaks).map(|(dialect, _)| dialect))
}

pub(super) fn aliases<S: Serializer>(
    aliases: &BTreeMap<String, String>,
    out: S,
) -> Result<S::Ok, S::Error> {
    out.collect_seq(aliases.iter().map(|(model, name)| format!("{model} as {name}")))
}

pub(super) fn rules<S: Serializer>(rules: &FieldRules, out: S) -> Result<S::Ok, S::Error> {
    let names = |rule| {
        let named = rules.named.iter().filter(move |(_, of)| *of == rule);
        named.map(|(name, _)| name).collect::<Vec<_>>()
    };
    out.collect_map([
        ("allow", names(FieldRule::Allow)),
        ("strip", names(FieldRule::Strip)),
        ("refuse", names(FieldRule::Refuse)),
    ])
}

/// Writes the rates of a pool of leases, which has no account.
pub(super) fn rates<S: Serializer>(quota: &QuotaConfig, out: S) -> Result<S::Ok, S::Error> {
    let QuotaConfig { requests_per_minute, tokens_per_minute, burst_seconds, .. } = *quota;
    out.collect_map([
        ("requests_per_minute", requests_per_minute),
        ("tokens_per_minute", tokens_per_minute),
        ("burst_seconds", Some(burst_seconds)),
    ])
}

pub(super) fn policy<S: Serializer>(policy: &Policy, out: S) -> Result<S::Ok, S::Error> {
    out.serialize_str(&format_policy(policy))
}

/// Writes the settings of classes that are not part of the policy: the assignment of requests to classes.
pub(super) fn classes<S: Serializer>(
    classes: &Option<PolicyClasses>,
    out: S,
) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct ClassesForm<'a> {
        #[serde(rename = "", serialize_with = "path")]
        file: &'a Path,
        default_policy_family: &'a str,
        uncached_isl_buckets: String,
        policy_classes: BTreeMap<&'a str, String>,
    }
    let form = classes.as_ref().map(|classes| {
        let buckets = classes.buckets().iter();
        let buckets =
            buckets.map(|ClassBucket { name, min_tokens }| format!("{name} from {min_tokens}"));
        let serves = |cell: &Option<ClassCell>| match cell {
            Some(ClassCell { family, bucket }) => format!("{family} × {bucket}"),
            None => "explicit".to_owned(),
        };
        let all = classes.all().iter();
        ClassesForm {
            file: classes.file(),
            default_policy_family: classes.default_family(),
            uncached_isl_buckets: buckets.collect::<Vec<_>>().join(", "),
            policy_classes: all.map(|class| (class.name.as_str(), serves(&class.cell))).collect(),
        }
    });
    form.serialize(out)
}

pub(super) fn models<S: Serializer>(models: &[ModelConfig], out: S) -> Result<S::Ok, S::Error> {
    out.serialize_str(&models.iter().map(model_text).collect::<Vec<_>>().join(", "))
}

fn model_text(model: &ModelConfig) -> String {
    let ModelConfig { name, upstream_name, hosted, hosted_budget, context_tokens } = model;
    let never = if *hosted { "" } else { " never hosted" };
    let budget = budget_text(hosted_budget);
    let context =
        context_tokens.map(|tokens| format!(" reads {tokens} tokens")).unwrap_or_default();
    match upstream_name {
        Some(upstream_name) => format!("{name} as {upstream_name}{never}{budget}{context}"),
        None => format!("{name}{never}{budget}{context}"),
    }
}

fn budget_text(budget: &HostedBudget) -> String {
    let HostedBudget { tokens_per_day, tokens_per_month, money_per_day, money_per_month } = budget;
    let words = [
        tokens_per_day.map(|tokens| format!("{tokens} tokens a day")),
        tokens_per_month.map(|tokens| format!("{tokens} tokens a month")),
        money_per_day.map(|money| format!("{money} a day")),
        money_per_month.map(|money| format!("{money} a month")),
    ];
    let words: Vec<String> = words.into_iter().flatten().collect();
    if words.is_empty() { String::new() } else { format!(" hosted up to {}", words.join(", ")) }
}

/// Writes each price as a setting of its own, by model, upstream and day.
pub(super) fn prices<S: Serializer>(prices: &ModelPrices, out: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct PricesForm {
        currency: Option<String>,
        models: BTreeMap<String, String>,
    }
    let currency = prices.currency().map(|currency| currency.to_string());
    PricesForm { currency, models: prices.all().map(price_entry).collect() }.serialize(out)
}

fn price_entry(price: &Price) -> (String, String) {
    let Price { id: _, model, upstream, currency: _, rates, from } = price;
    let on = upstream.as_ref().map(|upstream| format!(" on {upstream}")).unwrap_or_default();
    let from = from.map(|day| format!(" from {}", day.name())).unwrap_or_default();
    let PriceRates { input, cached_input, cache_write, cache_write_1h, output, request } = rates;
    let part = |rate: &Option<PerMillion>, what| {
        rate.map_or_else(String::new, |rate| format!(", {rate} {what}"))
    };
    let text = format!(
        "{input} input, {cached_input} cached input{}{}, {output} output a million tokens, {request} a request",
        part(cache_write, "cache writes"),
        part(cache_write_1h, "cache writes for an hour"),
    );
    (format!("{model}{on}{from}"), text)
}

/// Writes the prices of worker time, which have no serde form of their own.
pub(super) fn worker_prices<S: Serializer>(
    prices: &Option<WorkerPrices>,
    out: S,
) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct WorkerPricesForm {
        request: u64,
        input: u64,
        input_input: u64,
        cached: u64,
        output: u64,
        context_output: u64,
    }
    let form = |prices: WorkerPrices| {
        let WorkerPrices { request, input, input_input, cached, output, context_output } = prices;
        WorkerPricesForm { request, input, input_input, cached, output, context_output }
    };
    prices.map(form).serialize(out)
}
