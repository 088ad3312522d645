//! Decides who is a member and who masters what, as pure functions of what was read from shared
//! storage.

mod masters;
mod split;

pub use masters::assign_masters;
pub use split::{Reach, who_stays};
