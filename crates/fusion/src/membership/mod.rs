//! Who is a member, and who masters what: decisions as pure functions of what was read from shared storage.

mod masters;

pub use masters::assign_masters;
