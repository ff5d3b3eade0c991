//! A command's process group, and how it is ended.

use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use tokio::time::{Instant, sleep};

/// How often it is looked whether anybody is left.
const LOOK: Duration = Duration::from_millis(20);

/// The group whose leader the command is: it and everything that it started, unless that left the group by itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct Group(Pid);

impl Group {
    /// The group of the process with this number.
    pub(super) fn of(pid: u32) -> Option<Self> {
        // Not 0 or 1: as groups these mean the caller's own, and everybody.
        let pid = i32::try_from(pid).ok().filter(|&pid| pid > 1)?;
        Pid::from_raw(pid).map(Self)
    }

    /// The number of the group.
    pub(super) fn number(self) -> u32 {
        self.0.as_raw_nonzero().get().unsigned_abs()
    }

    /// Whether anybody is left in it.
    pub(super) fn is_alive(self) -> bool {
        test_kill_process_group(self.0).is_ok()
    }

    /// Asks it to end.
    pub(super) fn terminate(self) {
        // A group that is gone needs no signal.
        let _ = kill_process_group(self.0, Signal::TERM);
    }

    /// Ends it.
    pub(super) fn kill(self) {
        let _ = kill_process_group(self.0, Signal::KILL);
    }

    /// Asks it to end, and ends it when the grace is over or `hurry` is done.
    pub(super) async fn end(self, grace: Duration, hurry: impl Future<Output = ()>) {
        self.terminate();
        let deadline = Instant::now() + grace;
        let gone = async {
            while self.is_alive() && Instant::now() < deadline {
                sleep(LOOK).await;
            }
        };
        tokio::select! {
            () = gone => {}
            () = hurry => {}
        }
        self.kill();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_group_of_everybody_is_none() {
        assert!(Group::of(0).is_none() && Group::of(1).is_none() && Group::of(u32::MAX).is_none());
        assert_eq!(Group::of(4242).map(Group::number), Some(4242));
    }
}
