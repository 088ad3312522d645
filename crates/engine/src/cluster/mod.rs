//! This instance among the others: its interconnect, who is a member in which epoch, and the
//! messages of the layers below.
//!
//! ```text
//! layer ── Post::send ──► evidence in front ──► interconnect
//!   ~~~► evidence taken in ──► Layer::message, by kind
//! rcfg ── looks at the control file, tries the locks of the silent
//!   ──► Layer::members_changed, Layer::settled
//! ```
//!
//! **Invariants.**
//! - Who is a member is what the control file says; nobody is told by a message, only that it is
//!   time to look. The thread `rcfg` alone moves this instance from epoch to epoch.
//! - A life of an instance is parted from before the next is met: a leaver waits until everybody
//!   has entered an epoch without it. Who missed that, because the leaver could not wait, ends.
//! - A joiner works only once every member has said that it is in the joiner's epoch or a later
//!   one, and who could not say so any more is recovered. A leaver is a member until all that it
//!   has is written and its thread is closed.
//! - An instance is dead when all its locks were got, under the control file's exclusive lock;
//!   silence and broken connections are only reasons to try. Locks that cannot be got are waited
//!   for, and that is said.
//! - The dead are no members from the epoch on in which they are declared dead; the others recover
//!   their blocks in it ([`recover`]) and go on meanwhile.
//! - A lone instance hears nothing of its layers' part in this: [`Layer::members_changed`] is
//!   called for the first time when somebody else comes.
//! - Receiving threads and `lmon` never wait here but for latches (R8), with one exception: a clock
//!   that is told of an SCN above its ceiling reads the control file, in which a joiner has raised
//!   it.
//!
//! **Layers**, from the top: `start`; `rcfg`; `heir`, `recover`, `evict`, `joining`, `leaving`,
//! `service`; `epochs`, `post`; `state`, which has the fields that all these share; `heirs`,
//! `suspicion`; `layers`; `setup`, `members`, `worker`.

mod epochs;
mod evict;
mod heir;
mod heirs;
mod joining;
mod layers;
mod leaving;
mod members;
mod post;
mod rcfg;
mod recover;
mod service;
mod setup;
mod start;
mod state;
mod suspicion;
mod worker;

pub use evict::{Evictions, is_locked};
pub(crate) use heirs::StandIn;
pub(crate) use joining::unwanted;
pub(crate) use layers::{Commits, of_core};
pub(crate) use members::list;
pub use members::{Kinds, Layer, Members};
pub(crate) use setup::Contact;
pub use setup::{ClusterHost, Eviction, Evidence};
pub(crate) use start::ClusterParts;
pub use state::Cluster;
pub use storage::lease::{FenceCommand, MemberRecord, MemberState};
pub(crate) use worker::Worker;
