//! One cache on simulated storage, and several over one data file.

mod abort;
mod cluster;
mod common;
mod crash;
mod hit_path;
mod replay_race;
mod stress;
