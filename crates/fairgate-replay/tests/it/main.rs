//! Tests of replays of folders, time ranges and weights.

mod folders;
