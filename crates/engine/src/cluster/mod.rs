//! This instance among the others: its interconnect, the members of each epoch, and the messages of
//! the layers below.
//!
//! ```text
//! layer ── Post::send ──► evidence in front ──► interconnect
//!   ~~~► evidence taken in ──► Layer::message, by kind
//! rcfg ── looks at the control file, tries the locks of the silent
//!   ──► Layer::members_changed, Layer::settled
//! ```
//!
//! **Invariants.**
//! - The control file says who is a member. Messages only say that it is time to look there. The
//!   thread `rcfg` alone moves this instance from epoch to epoch.
//! - Others part from a life of an instance before they meet the next: a leaver waits until every
//!   member has entered an epoch without it. If the leaver could not wait, an instance that missed
//!   that epoch ends.
//! - A joiner works only when two things are done: every member has said that it is in the joiner's
//!   epoch or a later one, and every member that died before it could say so is recovered. A leaver
//!   is a member until all that it has is written and its thread is closed.
//! - An instance is dead when a survivor got all its locks, under the control file's exclusive
//!   lock. Silence and broken connections are only reasons to try. Locks that cannot be got are
//!   waited for, and the log says so.
//! - The dead are no members from the epoch on in which they are declared dead. In that epoch the
//!   others recover their blocks ([`recover`]), and go on working meanwhile.
//! - The layers of a lone instance hear nothing of all this: [`Layer::members_changed`] is called
//!   for the first time when another instance comes.
//! - Receiving threads and `lmon` wait here for nothing but latches (R8). There is one exception: a
//!   clock that is told of an SCN above its ceiling reads the control file, in which a joiner has
//!   raised the ceiling.
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
