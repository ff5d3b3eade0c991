//! The `fairgate` command as its users meet it: the real binary, its output and its exit status.

mod agent;
mod check;
mod completions;
mod continued;
mod diff;
mod docs;
mod explain;
mod fairness;
mod replay;
mod run;
mod serve;
mod vectors;
mod what_if;
