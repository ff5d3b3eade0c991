//! Reads the prices of models.

use std::collections::BTreeMap;

use fairgate_money::{Currency, MicroUnits, ModelPrices, PerMillion, Price, PriceRates};
use fairgate_time::UtcDay;

use crate::field::{ConfigField, ConfigSection};
use crate::read::model_name;
use crate::read::pool::PoolDraft;
use crate::read::upstream::UpstreamDraft;
use crate::suggest::did_you_mean;

const PRICE: &[&str] = &[
    "model",
    "upstream",
    "input",
    "cached_input",
    "cache_write",
    "cache_write_1h",
    "output",
    "request",
    "from",
];

/// The highest price of a million tokens or of a request, in units of the currency.
const MOST: u64 = 1_000_000;

/// Reads the prices. `upstreams` or `pools` is `None` if it could not be read.
pub(super) fn prices(
    field: ConfigField<'_>,
    upstreams: Option<&[UpstreamDraft<'_>]>,
    pools: Option<&[PoolDraft]>,
) -> Option<ModelPrices> {
    let section = field.section(&["currency", "models"])?;
    let currency =
        section.required("currency", "the currency of all prices, such as USD", currency);
    let models = section.required("models", "the price of each model", |field| {
        let mut taken = BTreeMap::new();
        let read = |field: ConfigField<'_>| price(field, currency, upstreams, pools, &mut taken);
        let all: Vec<_> = field.list()?.into_iter().map(read).collect();
        all.into_iter().collect::<Option<Vec<Price>>>()
    });
    currency?;
    models.map(ModelPrices::new)
}

fn currency(field: ConfigField<'_>) -> Option<Currency> {
    let found = field.scalar().and_then(Currency::parse);
    found.or_else(|| field.wrong("must be a currency as three capital letters, such as USD or EUR"))
}

type PriceKeysTaken = BTreeMap<(String, Option<String>, Option<UtcDay>), usize>;

fn price(
    field: ConfigField<'_>,
    currency: Option<Currency>,
    upstreams: Option<&[UpstreamDraft<'_>]>,
    pools: Option<&[PoolDraft]>,
    taken: &mut PriceKeysTaken,
) -> Option<Price> {
    let line = field.node.place.line;
    let section = field.clone().section(PRICE)?;
    let model =
        section.required("model", "what clients ask for", |field| known_model(field, pools));
    let upstream = section.optional("upstream", |field| known_upstream(field, upstreams));
    let rates = rates(&section);
    let from = section.optional("from", date);
    let (model, upstream, from) = (model?, upstream?, from?);
    if let (Some(name), Some(pools)) = (&upstream, pools) {
        let serves = |pool: &PoolDraft| pool.workers.contains(name) && pool.models.contains(&model);
        if !pools.iter().any(serves) {
            return field
                .wrong(format!("no pool with the worker {name:?} has the model {model:?}"));
        }
    }
    let place = (model.clone(), upstream.clone(), from);
    if let Some(first) = taken.insert(place, line) {
        let what = "another price is for the same model, upstream and day, on line";
        return field.wrong(format!("{what} {first}: remove one, or give one a later `from`"));
    }
    Some(Price::new(&model, upstream.as_deref(), currency?, rates?, from))
}

fn rates(section: &ConfigSection<'_>) -> Option<PriceRates> {
    let tokens = |name: &str, what| section.required(name, what, amount);
    let input = tokens("input", "what a million input tokens cost; 0 for nothing");
    let cached_input = section.optional("cached_input", amount);
    let cache_write = section.optional("cache_write", amount);
    let cache_write_1h = section.optional("cache_write_1h", amount);
    let output = tokens("output", "what a million output tokens cost; 0 for nothing");
    let request = section.or("request", MicroUnits::ZERO, amount);
    let (input, cached_input) = (input?, cached_input?);
    Some(PriceRates {
        input: PerMillion(input.0),
        cached_input: PerMillion(cached_input.unwrap_or(input).0),
        cache_write: cache_write?.map(|amount| PerMillion(amount.0)),
        cache_write_1h: cache_write_1h?.map(|amount| PerMillion(amount.0)),
        output: PerMillion(output?.0),
        request: request?,
    })
}

fn amount(field: ConfigField<'_>) -> Option<MicroUnits> {
    let most = MicroUnits::parse(&MOST.to_string()).unwrap_or_default();
    let found = field.plain().and_then(MicroUnits::parse).filter(|amount| *amount <= most);
    let expected = format_args!("a decimal from 0 to {MOST} of at most 6 places");
    found.or_else(|| field.expected(expected))
}

fn date(field: ConfigField<'_>) -> Option<UtcDay> {
    let found = field.scalar().and_then(UtcDay::parse);
    found.or_else(|| field.expected("a date such as 2026-11-01"))
}

fn known_model(field: ConfigField<'_>, pools: Option<&[PoolDraft]>) -> Option<String> {
    let model = model_name(field.clone())?;
    let Some(pools) = pools else { return Some(model) };
    let models = || pools.iter().flat_map(|pool| &pool.models).map(String::as_str);
    if pools.iter().any(|pool| pool.is_leased) || models().any(|known| known == model) {
        return Some(model);
    }
    let guess = did_you_mean(&model, models());
    field.wrong(format!("no pool has the model {model:?}{guess}"))
}

fn known_upstream(
    field: ConfigField<'_>,
    upstreams: Option<&[UpstreamDraft<'_>]>,
) -> Option<String> {
    let name = field.clone().text()?.to_owned();
    let Some(upstreams) = upstreams else { return Some(name) };
    let names = || upstreams.iter().filter_map(|upstream| upstream.name.as_deref());
    if names().any(|known| known == name) {
        return Some(name);
    }
    let guess = did_you_mean(&name, names());
    field.wrong(format!("no upstream is called {name:?}{guess}"))
}
