//! Replays of folders, time ranges and weights.

mod folders;
