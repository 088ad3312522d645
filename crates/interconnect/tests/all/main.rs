//! Instances over loopback, in one process and in several.

mod common;
mod faults;
mod mesh;
mod processes;
mod strangers;
mod tls;
