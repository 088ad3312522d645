//! The seam between the engine and the machine: locks, threads, clocks and, for the simulation,
//! sockets. Everything above uses these and not those of `std` or `parking_lot` (clippy forbids the
//! others). So one process can hold a whole cluster whose every step a seed chooses.
//!
//! In a release build the names are those of `parking_lot` and `std` themselves: nothing is added.
//! With debug assertions each call looks whether its thread belongs to a simulation ([`sim`]). If
//! it does not, the call goes on to the real thing.
//!
//! **Invariants** of a thread in a simulation.
//! - The thread runs only while it has the baton, and one thread has it. The baton is handed on at
//!   calls of this crate and nowhere else: what happens between two calls is one step.
//! - Everything that can make the thread wait for another thread is here. Waiting elsewhere (a lock
//!   of `std`, a channel, a system call) would keep the baton for ever.
//! - Locks that are held during no call of this crate may be real ones: nobody ever waits for them.
//!   Such are the simulation's own locks, and those that simulated processes have in common: a
//!   process that is killed holds none of them.

mod collections;
mod device;
pub mod hint;
#[cfg(debug_assertions)]
mod lock;
mod random;
pub mod thread;
mod time;

#[cfg(debug_assertions)]
pub mod sim;

pub use collections::{HashMap, HashSet};
pub use device::{device, drawn, planted};
#[cfg(debug_assertions)]
pub use lock::{
    Condvar, Mutex, MutexGuard, RawMutex, RawRwLock, RwLock, RwLockReadGuard, RwLockWriteGuard,
    WaitTimeoutResult,
};
#[cfg(not(debug_assertions))]
pub use parking_lot::{
    Condvar, Mutex, MutexGuard, RawMutex, RawRwLock, RwLock, RwLockReadGuard, RwLockWriteGuard,
    WaitTimeoutResult,
};
pub use random::Rng;
pub use time::{elapsed, now, simulated_ns, wall_clock};
