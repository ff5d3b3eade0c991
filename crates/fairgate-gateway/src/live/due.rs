//! The part of a pool that several flows of one name are due together: a tenant's in every class, for example.

use super::activity::Activity;
use super::flows::FlowView;

/// What the flows of a row are due of the pool; 1 is all.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DuePart {
    /// The sum over those that want something now.
    wanted: Option<f64>,
    /// The most that one of those that want nothing would be due if it did. These are alternatives, so they do not add up.
    idle: Option<f64>,
}

impl DuePart {
    pub(super) fn add(&mut self, flow: &FlowView<'_>) {
        if let Some(due) = flow.due {
            self.note(due, flow.activity.is_some_and(Activity::is_active));
        }
    }

    fn note(&mut self, due: f64, is_active: bool) {
        match is_active {
            true => self.wanted = Some(self.wanted.unwrap_or(0.0) + due),
            false => self.idle = Some(self.idle.unwrap_or(0.0).max(due)),
        }
    }

    /// What is shown: the part of those that want something, or what it would be where none does.
    pub(super) fn part(self) -> Option<f64> {
        self.wanted.or(self.idle)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_add_up_only_where_something_is_wanted() {
        let mut idle = DuePart::default();
        assert_eq!(idle.part(), None);
        idle.note(1.0, false);
        idle.note(0.5, false);
        assert_eq!(idle.part(), Some(1.0));
        let mut busy = idle;
        busy.note(0.25, true);
        busy.note(0.5, true);
        assert_eq!(busy.part(), Some(0.75));
    }
}
