//! Tests of the `fairgate` binary as users run it: its output and its exit status.

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
