//! Gauges of the policy classes, filled at each scrape.

use std::collections::BTreeMap;
use std::sync::Arc;

use fairgate_config::CostUnit;
use fairgate_core::attribute::Attribute;
use fairgate_core::fairness::NodeFairness;
use fairgate_proxy::metrics::ClassLabels;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

use super::pool_gauges::gauge_value;

/// Maximum number of classes per pool that have gauges. A policy usually lists far fewer classes.
const CLASSES_SHOWN: usize = 100;

type Gauges = Family<ClassLabels, Gauge>;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ClassUnitLabels {
    pool: Arc<str>,
    class: Arc<str>,
    unit: &'static str,
}

/// Gauges by pool and class.
#[derive(Debug, Default)]
pub(super) struct ClassGauges {
    in_flight: Gauges,
    queued: Gauges,
    got: Family<ClassUnitLabels, Gauge>,
    due: Family<ClassUnitLabels, Gauge>,
    /// Service that the classes got in pools that count tokens. The gauge's name ends in `_tokens`.
    got_tokens: Gauges,
    due_tokens: Gauges,
}

/// Sums over all flows of one class, wherever in the policy tree they are.
#[derive(Default)]
struct ClassSums {
    in_flight: u64,
    queued: u64,
    got: i128,
    due: Option<i128>,
}

impl ClassGauges {
    /// Creates one series of each gauge, for the reference of metrics.
    #[cfg(test)]
    pub(super) fn fill_sample(&self) {
        let labels = ClassLabels { pool: "small".into(), class: "batch".into() };
        for family in [&self.in_flight, &self.queued, &self.got_tokens, &self.due_tokens] {
            family.get_or_create(&labels).set(1);
        }
        let ClassLabels { pool, class } = labels;
        let labels = ClassUnitLabels { pool, class, unit: "tokens" };
        for family in [&self.got, &self.due] {
            family.get_or_create(&labels).set(1);
        }
    }

    pub(super) fn read_pool(&self, pool: &Arc<str>, nodes: &[NodeFairness], unit: CostUnit) {
        let mut classes: BTreeMap<&Arc<str>, ClassSums> = BTreeMap::new();
        let nodes = nodes.iter().filter(|node| node.by == Attribute::Class);
        for flow in nodes.flat_map(|node| &node.flows) {
            let sum = classes.entry(&flow.name).or_default();
            sum.in_flight += u64::from(flow.in_flight);
            sum.queued += u64::from(flow.waiting);
            sum.got = sum.got.saturating_add(flow.got);
            let due = flow.due.map(|due| due.tokens.saturating_add(sum.due.unwrap_or(0)));
            sum.due = due.or(sum.due);
        }
        for (class, sum) in classes.into_iter().take(CLASSES_SHOWN) {
            let labels = ClassLabels { pool: pool.clone(), class: class.clone() };
            self.in_flight.get_or_create(&labels).set(gauge_value(sum.in_flight));
            self.queued.get_or_create(&labels).set(gauge_value(sum.queued));
            if unit == CostUnit::Tokens {
                self.got_tokens.get_or_create(&labels).set(gauge_value(sum.got));
                if let Some(due) = sum.due {
                    self.due_tokens.get_or_create(&labels).set(gauge_value(due));
                }
            }
            let ClassLabels { pool, class } = labels;
            let labels = ClassUnitLabels { pool, class, unit: unit.name() };
            self.got.get_or_create(&labels).set(gauge_value(sum.got));
            if let Some(due) = sum.due {
                self.due.get_or_create(&labels).set(gauge_value(due));
            }
        }
    }

    pub(super) fn register_in(self, to: &mut Registry) {
        let requests = || Unit::Other("requests".to_owned());
        let tokens = || Unit::Other("tokens".to_owned());
        let help = "Number of requests of the policy class in flight";
        to.register_with_unit("class_in_flight", help, requests(), self.in_flight);
        let help = "Number of requests of the policy class that wait";
        to.register_with_unit("class_queued", help, requests(), self.queued);
        let help = "Service in the pool's unit that the policy class got";
        to.register("class_got", help, self.got);
        let help =
            "Service in the pool's unit that the policy class was due by its weight or quantum";
        to.register("class_due", help, self.due);
        let help = "Tokens that the policy class got";
        to.register_with_unit("class_got", help, tokens(), self.got_tokens);
        let help = "Tokens that the policy class was due by its weight or quantum";
        to.register_with_unit("class_due", help, tokens(), self.due_tokens);
    }
}
