//! A scheduler that several threads share.

use std::sync::{Arc, Mutex};

use crate::local_scheduler::LocalScheduler;
use crate::waiter::PythonWaiter;

/// A scheduler that the module `deadlock` can read too. A scheduler is locked only while the GIL is held, so that
/// `deadlock` sees the state of all schedulers at one moment.
pub(crate) type SharedScheduler = Arc<Mutex<LocalScheduler<PythonWaiter>>>;
