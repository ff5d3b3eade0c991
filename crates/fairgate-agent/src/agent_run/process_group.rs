//! A command's process group, and how to end it.

use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use tokio::time::{Instant, sleep};

/// Pause between two checks of whether a process of the group still runs.
const LOOK: Duration = Duration::from_millis(20);

/// The process group that the command leads. It consists of the command and all processes that the command started,
/// unless they left the group.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProcessGroup(Pid);

impl ProcessGroup {
    /// Returns the group of the process with this id.
    pub(super) fn of(pid: u32) -> Option<Self> {
        // Excludes 0 and 1: as groups they mean the caller's own group and all processes.
        let pid = i32::try_from(pid).ok().filter(|&pid| pid > 1)?;
        Pid::from_raw(pid).map(Self)
    }

    /// Returns the id of the group.
    pub(super) fn number(self) -> u32 {
        self.0.as_raw_nonzero().get().unsigned_abs()
    }

    /// Returns true if a process is left in the group.
    pub(super) fn is_alive(self) -> bool {
        test_kill_process_group(self.0).is_ok()
    }

    /// Sends SIGTERM to the group.
    pub(super) fn terminate(self) {
        // A group that is gone needs no signal.
        let _ = kill_process_group(self.0, Signal::TERM);
    }

    /// Sends SIGKILL to the group.
    pub(super) fn kill(self) {
        let _ = kill_process_group(self.0, Signal::KILL);
    }

    /// Sends SIGTERM to the group, then SIGKILL when the time `grace` is over or `hurry` completes.
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
        assert!(
            ProcessGroup::of(0).is_none()
                && ProcessGroup::of(1).is_none()
                && ProcessGroup::of(u32::MAX).is_none()
        );
        assert_eq!(ProcessGroup::of(4242).map(ProcessGroup::number), Some(4242));
    }
}
