//! Transactions of one instance and of several, on simulated storage.

mod cluster;
mod common;
mod crash;
mod locks;
mod queues;
mod transactions;
