//! How many requests wait or are in flight in each flow.

use std::collections::HashMap;

use fairgate_core::policy::{Inside, Node};
use fairgate_core::snapshot::RequestSnapshot;
use fairgate_core::units::Micros;

use crate::tree::{flow_of, inside_of};

/// A flow's requests, and those of the flows inside it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Activity<'a> {
    pub(super) in_flight: u64,
    pub(super) waiting: u64,
    /// When the request was submitted that has waited longest.
    pub(super) oldest: Option<Micros>,
    pub(super) inside: HashMap<&'a str, Activity<'a>>,
}

impl<'a> Activity<'a> {
    /// Counts all requests down the tree.
    pub(super) fn of(root: &'a Node, requests: &'a [RequestSnapshot]) -> Self {
        let mut all = Self::default();
        requests.iter().for_each(|request| all.count(root, request));
        all
    }

    fn count(&mut self, root: &'a Node, request: &'a RequestSnapshot) {
        let mut activity = self;
        let mut node = Some(root);
        loop {
            match request.flight.is_some() {
                true => activity.in_flight += 1,
                false => {
                    activity.waiting += 1;
                    activity.oldest = activity.oldest.into_iter().chain([request.at]).min();
                }
            }
            let Some(level) = node else { return };
            let flow = flow_of(level, request.attributes.get(level.by()));
            activity = activity.inside.entry(flow).or_default();
            node = match inside_of(level, flow) {
                Some(Inside::Node(node)) => Some(node),
                Some(Inside::Queue(_)) | None => None,
            };
        }
    }

    pub(super) fn is_active(&self) -> bool {
        self.in_flight + self.waiting > 0
    }
}
