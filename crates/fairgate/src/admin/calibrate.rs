//! The command `fairgate calibrate`, which shows the prices of the time of a pool's workers.

mod plot;

use anyhow::Result;
use clap::Args;
use fairgate_api::admin::{
    CalibrationBody, NearestTokenWeightsBody, TypicalRequestBody, UnitSwitchBody,
    WorkerCalibrationBody, WorkerPricesBody,
};
use fairgate_core::units::Percentage;
use fairgate_table::{TableCell, TextTable};

use super::{AdminOptions, escaped, understood};
use crate::text_format::one_line;

/// Show what the time of a pool's workers costs, what tenants use of it, what `unit: worker_time` would change for them,
/// and the block to state for it.
#[derive(Debug, Args)]
pub(crate) struct CalibrateArgs {
    #[command(flatten)]
    common: AdminOptions,
    /// Name of the pool.
    pool: String,
}

impl CalibrateArgs {
    pub(crate) fn run(&self) -> Result<()> {
        let client = self.common.client()?;
        let answer = client.get(&format!("/api/v1/pools/{}/calibration", escaped(&self.pool)))?;
        let body: CalibrationBody = understood(&answer)?;
        self.common.print_line(&answer, &text(&body)?)
    }
}

/// Formats the whole answer for people.
fn text(body: &CalibrationBody) -> Result<String> {
    let mut lines = vec![format!("pool {} counts {}", one_line(&body.pool), body.unit)];
    let Some(prices) = &body.prices else {
        lines.push(
            "no worker of it has a time that could be priced: all are hosted, or the pool has observe: false and states no prices"
                .to_owned(),
        );
        return Ok(lines.join("\n"));
    };
    for worker in &body.workers {
        lines.push(summary(worker));
        lines.push(format!("  {}", in_words(&worker.prices)));
        lines.extend(worker.notes.iter().map(|note| format!("  ! {note}")));
        lines.extend(plot::plot(&worker.recent_windows));
    }
    lines.push(String::new());
    lines.push(table(body)?);
    if let Some(switch) = &body.switch {
        lines.push(format!(
            "What unit: worker_time would change, by the last {} s:",
            switch.window_s
        ));
        lines.push(switch_table(switch)?);
    }
    if let Some(weights) = &body.token_weights {
        lines.push(weights_line(weights));
        lines.push(String::new());
    }
    lines.push("To state these prices, so that nothing is learned:".to_owned());
    lines.push(block(prices));
    Ok(lines.join("\n"))
}

fn summary(worker: &WorkerCalibrationBody) -> String {
    let name = one_line(&worker.worker);
    match &*worker.learning {
        "stated" => format!("{name}  prices are stated; full batch {:.1}", worker.batch),
        state => format!(
            "{name}  {} from {} windows; windows are {:.1} % from predicted; full batch {:.1} of {} slots",
            state.replace('_', " "),
            worker.windows,
            100.0 * worker.deviation,
            worker.batch,
            worker.slots
        ),
    }
}

fn in_words(prices: &WorkerPricesBody) -> String {
    let WorkerPricesBody { request, input, input_input, cached, output, context_output } = *prices;
    [
        ("a request", request),
        ("input", input),
        ("input × position", input_input),
        ("cached", cached),
        ("output", output),
        ("context × output", context_output),
    ]
    .map(|(name, price)| format!("{name} {}", time(price)))
    .join(" · ")
}

/// Formats picoseconds in the largest unit that is not larger than the time.
fn time(picoseconds: u64) -> String {
    const UNITS: [(u64, &str); 4] =
        [(1_000_000_000_000, "s"), (1_000_000_000, "ms"), (1_000_000, "µs"), (1_000, "ns")];
    match UNITS.into_iter().find(|(size, _)| picoseconds >= *size) {
        Some((size, unit)) => {
            let hundredths = u128::from(picoseconds) * 100 / u128::from(size);
            format!("{}.{:02} {unit}", hundredths / 100, hundredths % 100)
        }
        None => format!("{picoseconds} ps"),
    }
}

/// Returns the table of tenants, each with its typical requests.
fn table(body: &CalibrationBody) -> Result<String> {
    let mut table = TextTable::new(vec![
        "tenant",
        "tokens",
        "worker time",
        "worker",
        "model",
        "typical request",
        "costs",
    ]);
    for tenant in &body.tenants {
        let mut shares = [
            TableCell::Text(one_line(&tenant.tenant)),
            TableCell::Number(percentage(tenant.share_of_tokens)),
            TableCell::Number(percentage(tenant.share_of_worker_time)),
        ];
        for worker in &body.workers {
            let own = worker.requests.iter().filter(|request| request.tenant == tenant.tenant);
            for request in own {
                let [first, tokens, time] = std::mem::replace(
                    &mut shares,
                    [(); 3].map(|()| TableCell::Text(String::new())),
                );
                table.row(vec![
                    first,
                    tokens,
                    time,
                    TableCell::Text(one_line(&worker.worker)),
                    TableCell::Text(one_line(&request.model)),
                    TableCell::Text(format!(
                        "{} in ({} cached), {} out",
                        request.input_tokens, request.cached_tokens, request.output_tokens
                    )),
                    TableCell::Number(cost(request)),
                ]);
            }
        }
    }
    written(&table)
}

fn written(table: &TextTable) -> Result<String> {
    let mut out = Vec::new();
    table.write(&mut out)?;
    Ok(String::from_utf8(out)?)
}

/// Returns the table of the tenants' shares before and after a change of the unit.
fn switch_table(switch: &UnitSwitchBody) -> Result<String> {
    let mut table =
        TextTable::new(vec!["tenant", "due", "got", "worker time", "after", "its requests"]);
    for tenant in &switch.tenants {
        table.row(vec![
            TableCell::Text(one_line(&tenant.tenant)),
            TableCell::Number(percentage(tenant.due_share)),
            TableCell::Number(percentage(tenant.got_share)),
            TableCell::Number(percentage(tenant.worker_time_share)),
            TableCell::Number(percentage(tenant.worker_time_share_after)),
            TableCell::Number(tenant.change.map_or_else(|| "-".to_owned(), signed_percentage)),
        ]);
    }
    written(&table)
}

/// Returns a sentence with the nearest weights of tokens and their errors.
fn weights_line(weights: &NearestTokenWeightsBody) -> String {
    let NearestTokenWeightsBody { input, cached_input, output, least, most } = *weights;
    let cached =
        cached_input.map_or_else(String::new, |cached| format!(", cached_input: {cached}"));
    format!(
        "The nearest weights in tokens are {{input: {input}{cached}, output: {output}}}: typical requests would be charged \
         {} to {} of their worker time.",
        signed_percentage(least),
        signed_percentage(most)
    )
}

/// Formats the cost of a typical request with its margin, if that is known.
fn cost(request: &TypicalRequestBody) -> String {
    let cost = time(request.cost_us.saturating_mul(1_000_000));
    match request.margin_us {
        Some(margin_us) => {
            let part = margin_us as f64 / request.cost_us.max(1) as f64;
            format!("{cost} ± {:.1} %", 100.0 * part)
        }
        None => cost,
    }
}

fn signed_percentage(part: f64) -> String {
    format!("{:+.1} %", 100.0 * part)
}

fn percentage(part: f64) -> String {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a part is from 0 to 1, and other numbers saturate"
    )]
    let ppm = (part * 1e6).round() as u64;
    Percentage::from_ppm(ppm).to_string()
}

/// Returns the lines of a pool in the configuration that state these prices.
fn block(prices: &WorkerPricesBody) -> String {
    let WorkerPricesBody { request, input, input_input, cached, output, context_output } = prices;
    format!(
        "    cost:
      unit: worker_time
      prices: # picoseconds of the full worker
        request: {request}
        input: {input}
        input_input: {input_input}
        cached: {cached}
        output: {output}
        context_output: {context_output}"
    )
}

#[cfg(test)]
mod tests {
    use fairgate_api::admin::{PredictedWindowBody, TenantSwitchBody, TenantWorkBody};

    use super::*;

    const PRICES: WorkerPricesBody = WorkerPricesBody {
        request: 2_490_000_000,
        input: 10_600_000,
        input_input: 1_200,
        cached: 800_000,
        output: 188_000_000,
        context_output: 26_000,
    };

    fn calibration() -> CalibrationBody {
        let request = TypicalRequestBody {
            tenant: "rag".into(),
            model: "llama".into(),
            input_tokens: 4096,
            cached_tokens: 0,
            output_tokens: 64,
            cost_us: 74_579,
            margin_us: Some(1_492),
        };
        let worker = WorkerCalibrationBody {
            worker: "gpu".into(),
            learning: "learning".into(),
            price_set: 7,
            prices: PRICES,
            slots: 16,
            batch: 15.7,
            fill: 0.98,
            windows: 104,
            deviation: 0.016,
            changes: 0,
            notes: vec!["nothing is wrong".into()],
            requests: vec![request],
            recent_windows: Vec::new(),
        };
        let switched = TenantSwitchBody {
            tenant: "rag".into(),
            due_share: 0.5,
            got_share: 0.498,
            worker_time_share: 0.099,
            worker_time_share_after: 0.5,
            change: Some(4.05),
        };
        let unknown = TenantSwitchBody { tenant: "new".into(), change: None, ..switched.clone() };
        let tenant = TenantWorkBody {
            tenant: "rag".into(),
            provider_tokens: 4160,
            worker_us: 74_579,
            share_of_tokens: 0.9,
            share_of_worker_time: 0.5,
        };
        CalibrationBody {
            pool: "llama".into(),
            unit: "tokens".into(),
            prices: Some(PRICES),
            workers: vec![worker],
            tenants: vec![tenant],
            switch: Some(UnitSwitchBody { window_s: 60, tenants: vec![switched, unknown] }),
            token_weights: Some(NearestTokenWeightsBody {
                input: 1.0,
                cached_input: Some(0.15),
                output: 13.0,
                least: -0.18,
                most: 0.13,
            }),
        }
    }

    #[test]
    fn prices_are_told_and_can_be_pasted() {
        let expected = "\
pool llama counts tokens
gpu  learning from 104 windows; windows are 1.6 % from predicted; full batch 15.7 of 16 slots
  a request 2.49 ms · input 10.60 µs · input × position 1.20 ns · cached 800.00 ns · output 188.00 µs · context × output 26.00 ns
  ! nothing is wrong

tenant  tokens  worker time  worker  model  typical request                        costs
rag     90.0 %       50.0 %  gpu     llama  4096 in (0 cached), 64 out  74.57 ms ± 2.0 %

What unit: worker_time would change, by the last 60 s:
tenant     due     got  worker time   after  its requests
rag     50.0 %  49.8 %        9.9 %  50.0 %      +405.0 %
new     50.0 %  49.8 %        9.9 %  50.0 %             -

The nearest weights in tokens are {input: 1, cached_input: 0.15, output: 13}: typical requests would be charged -18.0 % to +13.0 % of their worker time.

To state these prices, so that nothing is learned:
    cost:
      unit: worker_time
      prices: # picoseconds of the full worker
        request: 2490000000
        input: 10600000
        input_input: 1200
        cached: 800000
        output: 188000000
        context_output: 26000";
        assert_eq!(text(&calibration()).unwrap(), expected);
    }

    #[test]
    fn the_windows_of_a_worker_are_plotted() {
        let mut body = calibration();
        body.workers[0].recent_windows =
            vec![PredictedWindowBody { measured_us: 500_000, predicted_us: 510_000 }];
        assert!(text(&body).unwrap().contains("the last 1 windows in ms"));
    }

    #[test]
    fn a_pool_of_hosted_workers_has_no_prices() {
        let hosted = CalibrationBody {
            prices: None,
            workers: Vec::new(),
            tenants: Vec::new(),
            switch: None,
            token_weights: None,
            ..calibration()
        };
        assert!(text(&hosted).unwrap().contains("no worker of it has a time"));
    }
}
