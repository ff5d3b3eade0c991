//! The share of a pool that several flows of one name are due together, such as one tenant's flows in every class.

use super::activity::FlowActivity;
use super::flows::FlowView;

/// Share of the pool that all flows of one row of the view are due together; 1 is the whole pool.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DueShare {
    /// Sum of the shares of the flows that have requests now; `None` if no flow has requests.
    wanted: Option<f64>,
    /// Largest share that an idle flow would be due if it became active; `None` if there is no idle flow. Only one of
    /// the idle flows is assumed to become active, so the shares of idle flows are not added.
    idle: Option<f64>,
}

impl DueShare {
    pub(super) fn add(&mut self, flow: &FlowView<'_>) {
        if let Some(due) = flow.due {
            self.note(due, flow.activity.is_some_and(FlowActivity::is_active));
        }
    }

    fn note(&mut self, due: f64, is_active: bool) {
        match is_active {
            true => self.wanted = Some(self.wanted.unwrap_or(0.0) + due),
            false => self.idle = Some(self.idle.unwrap_or(0.0).max(due)),
        }
    }

    /// Returns the share that the active flows are due together; `None` if no flow is active.
    pub(super) fn active_part(self) -> Option<f64> {
        self.wanted
    }

    /// Returns the share that the active flows are due together. If no flow is active, returns the largest share that
    /// an idle flow would be due.
    pub(super) fn part(self) -> Option<f64> {
        self.wanted.or(self.idle)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_add_up_only_where_something_is_wanted() {
        let mut idle = DueShare::default();
        assert_eq!(idle.part(), None);
        idle.note(1.0, false);
        idle.note(0.5, false);
        assert_eq!(idle.active_part(), None);
        assert_eq!(idle.part(), Some(1.0));
        let mut busy = idle;
        busy.note(0.25, true);
        busy.note(0.5, true);
        assert_eq!((busy.part(), busy.active_part()), (Some(0.75), Some(0.75)));
    }
}
