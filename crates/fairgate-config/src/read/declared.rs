//! Reads the groups, tenants and keys that a file declares.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::time::Duration;

use fairgate_time::{UnixMicros, parse_rfc3339};

use super::hosted::money;
use super::secret;
use crate::declared::{
    DeclaredBudget, DeclaredDirectory, DeclaredGroup, DeclaredKey, DeclaredKeyHash, DeclaredLimits,
    DeclaredRights, DeclaredTenant,
};
use crate::defaults;
use crate::field::{ConfigField, ConfigSection};
use crate::suggest::did_you_mean;

const GROUP: &[&str] = &["name", "weight", "limits"];
const TENANT: &[&str] = &["name", "group", "weight", "disabled", "limits", "requires"];
const KEY: &[&str] = &[
    "name",
    "tenant",
    "secret",
    "weight",
    "models",
    "classes",
    "priority_max",
    "weight_max",
    "workers",
    "may_pin",
    "may_lease",
    "may_use_foreign_ids",
    "taints",
    "deadline",
    "deadline_min",
    "expires_at",
    "limits",
];
const GROUP_LIMITS: &[&str] = &[
    "tokens_per_day",
    "tokens_per_month",
    "money_per_day",
    "money_per_month",
    "hosted_tokens_per_day",
    "hosted_tokens_per_month",
    "hosted_money_per_day",
    "hosted_money_per_month",
];
const LIMITS: &[&str] = &[
    "in_flight",
    "queued_requests",
    "queued_bytes",
    "requests_per_minute",
    "tokens_per_minute",
    "tokens_per_day",
    "tokens_per_month",
    "money_per_day",
    "money_per_month",
    "hosted_tokens_per_day",
    "hosted_tokens_per_month",
    "hosted_money_per_day",
    "hosted_money_per_month",
    "hosted",
];

/// Range of the weight of a group, tenant or key.
const WEIGHT: RangeInclusive<u64> = 1..=1_000_000;
/// Greatest value of a limit.
const LIMIT_MAX: u64 = 1_000_000_000_000_000;
/// Greatest number of names in a list of a key's rights.
const NAMES_MAX: usize = 256;
/// Greatest number of labels that a tenant requires, and the longest part of a label.
const LABELS_MAX: usize = 32;
const LABEL_PART_MAX: usize = 64;
/// The longest name of a model, and of a class, worker or taint.
const MODEL_BYTES_MAX: usize = 256;
const NAME_BYTES_MAX: usize = 128;
/// Range of a deadline.
const DEADLINE: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(86_400);
/// First moment of the year 10000.
const EXPIRY_END: UnixMicros = UnixMicros(253_402_300_800_000_000);
/// Name that the ledger gives to the gateway's own requests.
const GATEWAY: &str = "fairgate";

/// Reads the sections `groups`, `tenants` and `keys` of the whole file. Money is an error without prices.
pub(super) fn declared(root: &ConfigSection<'_>, has_prices: bool) -> Option<DeclaredDirectory> {
    let is_stated = ["groups", "tenants", "keys"].iter().any(|section| root.has(section));
    let groups = root.or("groups", Vec::new(), |field| {
        let read = |field: ConfigField<'_>| group(field, has_prices);
        each(field, "group", read, |group| group.name.clone())
    });
    let group_names =
        groups.as_ref().map(|groups| groups.iter().map(|group| group.name.clone()).collect());
    let tenants = root.or("tenants", Vec::new(), |field| {
        let read = |field: ConfigField<'_>| tenant(field, group_names.as_ref(), has_prices);
        each(field, "tenant", read, |tenant| tenant.name.clone())
    });
    let tenant_names =
        tenants.as_ref().map(|tenants| tenants.iter().map(|tenant| tenant.name.clone()).collect());
    let keys = root.or("keys", Vec::new(), |field| {
        let mut taken = BTreeMap::new();
        let read =
            |field: ConfigField<'_>| key(field, tenant_names.as_ref(), has_prices, &mut taken);
        each(field, "key", read, |key| format!("{} of {}", key.name, key.tenant))
    });
    let file = root.field.context.file.to_owned();
    Some(DeclaredDirectory { file, is_stated, groups: groups?, tenants: tenants?, keys: keys? })
}

/// Reads each element of a list, which may be empty. Two elements of one name are an error.
fn each<'a, T>(
    field: ConfigField<'a>,
    what: &str,
    mut read: impl FnMut(ConfigField<'a>) -> Option<T>,
    name: impl Fn(&T) -> String,
) -> Option<Vec<T>> {
    let elements = field.list_or_empty()?;
    let mut lines: BTreeMap<String, usize> = BTreeMap::new();
    let mut all = Vec::with_capacity(elements.len());
    let mut is_well = true;
    for element in elements {
        let line = element.node.place.line;
        let Some(one) = read(element.clone()) else {
            is_well = false;
            continue;
        };
        let name = name(&one);
        if let Some(first) = lines.get(&name) {
            let message = format!("the {what} {name:?} is declared twice, first on line {first}");
            element.wrong::<()>(message);
            is_well = false;
            continue;
        }
        lines.insert(name, line);
        all.push(one);
    }
    is_well.then_some(all)
}

fn group(field: ConfigField<'_>, has_prices: bool) -> Option<DeclaredGroup> {
    let line = field.node.place.line;
    let section = field.section(GROUP)?;
    let name = section.required("name", "the name of the group", owner_name);
    let weight = weight(&section);
    let budgets = section
        .or("limits", Vec::new(), |field| budgets(&field.section(GROUP_LIMITS)?, has_prices));
    Some(DeclaredGroup { line, name: name?, weight: weight?, budgets: budgets? })
}

fn tenant(
    field: ConfigField<'_>,
    groups: Option<&BTreeSet<String>>,
    has_prices: bool,
) -> Option<DeclaredTenant> {
    let line = field.node.place.line;
    let section = field.section(TENANT)?;
    let name = section.required("name", "the name of the tenant", owner_name);
    let group = section.required("group", "the name of a group of this file", |field| {
        reference(field, "group", groups)
    });
    let weight = weight(&section);
    let disabled = section.or("disabled", false, ConfigField::boolean);
    let limits = limits(&section, has_prices);
    let requires = section.or("requires", Vec::new(), labels);
    Some(DeclaredTenant {
        line,
        name: name?,
        group: group?,
        weight: weight?,
        disabled: disabled?,
        limits: limits?,
        requires: requires?,
    })
}

/// Reads a key. `taken` has the lines of the secrets that were read before.
fn key(
    field: ConfigField<'_>,
    tenants: Option<&BTreeSet<String>>,
    has_prices: bool,
    taken: &mut BTreeMap<DeclaredKeyHash, usize>,
) -> Option<DeclaredKey> {
    let line = field.node.place.line;
    let section = field.section(KEY)?;
    let name = section.required("name", "what this file calls the key", key_name);
    let tenant = section.required("tenant", "the name of a tenant of this file", |field| {
        reference(field, "tenant", tenants)
    });
    let secret = section.required(
        "secret",
        "{hash: …} as `fairgate key hash` prints it, or {env: NAME} or {file: PATH} of the key itself",
        |field| {
            let secret = secret::declared_secret(field.clone())?;
            if let Some(first) = taken.insert(secret.hash, line) {
                let message = format!("is the secret of the key on line {first}, too");
                return field.wrong(message);
            }
            Some(secret)
        },
    );
    let weight = weight(&section);
    let rights = rights(&section);
    let expires_at = section.nullable("expires_at", moment);
    let limits = limits(&section, has_prices);
    let secret = secret?;
    Some(DeclaredKey {
        line,
        tenant: tenant?,
        name: name?,
        hash: secret.hash,
        hint: secret.hint,
        source: secret.source,
        weight: weight?,
        limits: limits?,
        rights: rights?,
        expires_at: expires_at?,
    })
}

fn rights(section: &ConfigSection<'_>) -> Option<DeclaredRights> {
    let flag = |name| section.or(name, false, ConfigField::boolean);
    let deadline = |name| section.nullable(name, |field| field.duration(DEADLINE));
    let models = names(section, "models", None, model_pattern);
    let classes = names(section, "classes", Some(Vec::new()), visible_name);
    let priority_max = section
        .or("priority_max", 0, |field| field.integer(0..=u64::from(i32::MAX.unsigned_abs())));
    let weight_max_milli =
        section.nullable("weight_max", |field| field.thousandths(1..=1_000_000_000));
    let workers = names(section, "workers", None, visible_name);
    let (may_pin, may_lease) = (flag("may_pin"), flag("may_lease"));
    let may_use_foreign_ids = flag("may_use_foreign_ids");
    let taints = names(section, "taints", Some(Vec::new()), visible_name);
    let (shortest, default) = (deadline("deadline_min"), deadline("deadline"));
    Some(DeclaredRights {
        models: models?,
        classes: classes?,
        priority_max: i64::try_from(priority_max?).unwrap_or(0),
        weight_max_milli: weight_max_milli?,
        workers: workers?,
        may_pin: may_pin?,
        may_lease: may_lease?,
        may_use_foreign_ids: may_use_foreign_ids?,
        taints: taints?,
        deadline: default?,
        deadline_min: shortest?,
    })
}

/// Reads a list of names. Null means all names; an absent list is `absent`.
fn names(
    section: &ConfigSection<'_>,
    name: &str,
    absent: Option<Vec<String>>,
    read: impl Fn(ConfigField<'_>) -> Option<String>,
) -> Option<Option<Vec<String>>> {
    if !section.has(name) {
        return Some(absent);
    }
    section.nullable(name, |field| {
        let elements = field.clone().list_or_empty()?;
        if elements.len() > NAMES_MAX {
            return field.wrong(format!("may have {NAMES_MAX} names and has {}", elements.len()));
        }
        elements.into_iter().map(&read).collect()
    })
}

fn visible_name(field: ConfigField<'_>) -> Option<String> {
    bounded_name(field, NAME_BYTES_MAX)
}

fn bounded_name(field: ConfigField<'_>, bytes_max: usize) -> Option<String> {
    let text = field.scalar().unwrap_or_default();
    match (1..=bytes_max).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic()) {
        true => Some(text.to_owned()),
        false => field.wrong(format!(
            "must be a name of 1 to {bytes_max} visible ASCII characters without spaces"
        )),
    }
}

/// Reads the name of a model, or a pattern with a `*` at its end for any ending.
fn model_pattern(field: ConfigField<'_>) -> Option<String> {
    let name = bounded_name(field.clone(), MODEL_BYTES_MAX)?;
    match name.strip_suffix('*').unwrap_or(&name).contains('*') {
        true => field.wrong("may have a * only at its end, where it stands for any ending"),
        false => Some(name),
    }
}

/// Reads the name of a group or tenant.
fn owner_name(field: ConfigField<'_>) -> Option<String> {
    let text = field.scalar().unwrap_or_default();
    let rest = |byte: u8| byte.is_ascii_alphanumeric() || b"._:@+-".contains(&byte);
    let begins = text.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
    if !begins || text.len() > NAME_BYTES_MAX || !text.bytes().all(rest) {
        return field.wrong(
            "must be a name of 1 to 128 letters, digits and . _ : @ + -, that begins with a letter or digit",
        );
    }
    match text == GATEWAY {
        true => field.wrong("must be another name: the ledger calls the gateway's own requests so"),
        false => Some(text.to_owned()),
    }
}

/// Reads the name of a key, which is for people.
fn key_name(field: ConfigField<'_>) -> Option<String> {
    let text = field.scalar().unwrap_or_default();
    let longest = if text.is_ascii() { NAME_BYTES_MAX } else { 32 };
    let fits = (1..=longest).contains(&text.chars().count()) && !text.contains(char::is_control);
    match fits {
        true => Some(text.to_owned()),
        false => field.wrong(
            "must be a name of up to 128 ASCII characters, or up to 32 of any kind, without control characters",
        ),
    }
}

/// Reads the name of a group or tenant that the file declares. `known` has the declared names;
/// `None` if they could not be read.
fn reference(
    field: ConfigField<'_>,
    what: &str,
    known: Option<&BTreeSet<String>>,
) -> Option<String> {
    let name = field.clone().text()?;
    let Some(known) = known else { return Some(name.to_owned()) };
    if known.contains(name) {
        return Some(name.to_owned());
    }
    let guess = did_you_mean(name, known.iter().map(String::as_str));
    field.wrong(format!("this file declares no {what} {name:?}{guess}"))
}

fn weight(section: &ConfigSection<'_>) -> Option<u64> {
    section.or("weight", defaults::DIRECTORY_WEIGHT, |field| field.integer(WEIGHT))
}

fn limits(section: &ConfigSection<'_>, has_prices: bool) -> Option<DeclaredLimits> {
    section.or("limits", DeclaredLimits::default(), |field| {
        let section = field.section(LIMITS)?;
        let limit = |name| section.nullable(name, |field| field.integer(1..=LIMIT_MAX));
        let in_flight = limit("in_flight");
        let queued_requests = limit("queued_requests");
        let queued_bytes = limit("queued_bytes");
        let requests_per_minute = limit("requests_per_minute");
        let tokens_per_minute = limit("tokens_per_minute");
        let never_hosted = section
            .or("hosted", false, |field| field.one_of(&[("allowed", false), ("never", true)]));
        let budgets = budgets(&section, has_prices);
        Some(DeclaredLimits {
            in_flight: in_flight?,
            queued_requests: queued_requests?,
            queued_bytes: queued_bytes?,
            requests_per_minute: requests_per_minute?,
            tokens_per_minute: tokens_per_minute?,
            never_hosted: never_hosted?,
            budgets: budgets?,
        })
    })
}

/// Reads the budgets among the limits, in the order of [`GROUP_LIMITS`].
fn budgets(section: &ConfigSection<'_>, has_prices: bool) -> Option<Vec<DeclaredBudget>> {
    let mut budgets = Vec::new();
    let mut is_well = true;
    for name in GROUP_LIMITS {
        let is_money = name.contains("money");
        let amount = match is_money {
            true => money(section, name, has_prices).map(|amount| amount.map(|amount| amount.0)),
            false => section.nullable(name, |field| field.integer(0..=LIMIT_MAX)),
        };
        match amount {
            None => is_well = false,
            Some(None) => {}
            Some(Some(amount)) => budgets.push(DeclaredBudget {
                is_hosted: name.starts_with("hosted"),
                is_monthly: name.ends_with("month"),
                is_money,
                amount,
            }),
        }
    }
    is_well.then_some(budgets)
}

/// Reads the labels that a tenant requires of agents, and sorts them.
fn labels(field: ConfigField<'_>) -> Option<Vec<String>> {
    let elements = field.clone().list_or_empty()?;
    if elements.len() > LABELS_MAX {
        return field.wrong(format!("may have {LABELS_MAX} labels and has {}", elements.len()));
    }
    let labels: Option<BTreeSet<String>> = elements.into_iter().map(label).collect();
    labels.map(|labels| labels.into_iter().collect())
}

/// Reads a label: a name, or two names with a colon between them.
fn label(field: ConfigField<'_>) -> Option<String> {
    let text = field.scalar().unwrap_or_default();
    let is_name = |name: &str| {
        let rest = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        (1..=LABEL_PART_MAX).contains(&name.len())
            && name.starts_with(|c: char| c.is_ascii_alphanumeric())
            && name.bytes().all(rest)
    };
    let (kind, name) = text.split_once(':').unwrap_or(("label", text));
    match is_name(kind) && is_name(name) {
        true => Some(text.to_owned()),
        false => field.wrong("must be a label such as docker or machine:m1"),
    }
}

fn moment(field: ConfigField<'_>) -> Option<UnixMicros> {
    let found = field.scalar().and_then(parse_rfc3339).filter(|at| *at < EXPIRY_END);
    found.or_else(|| field.expected("a time such as 2027-01-01T00:00:00Z"))
}
