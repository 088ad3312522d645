//! The tree lane: a query becomes a tree whose names and types are settled (`analyze`), the tree a
//! plan (`optimize`), and the plan's operators are pulled for rows (`run`).
//!
//! **Registers.** All rows of one level and of the levels in its FROM live in one *register file*.
//! Each column of each relation has a register of its own, and so has each group key, aggregate
//! and computed column. An operator puts a row's values into its registers and says that there is
//! one; whatever stands above reads them there. So the order in which relations are joined moves no
//! column, LATERAL needs no parameters, and an expression is resolved once. The statement's
//! parameters are the first registers of each file. A subquery within an expression has a file of
//! its own, whose inputs are put into it before it runs.
//!
//! **Invariants.**
//! - An operator that keeps rows (sort, hash table, groups, window) puts every register back that
//!   it was told to keep, and no other.
//! - Nothing is held between two rows but the snapshot, memory within `work_mem` and temporary
//!   files: a portal may stop at any row.
//! - What is not supported is refused by the analysis with 0A000. No clause is dropped.

pub mod aggregate;
pub mod analyze;
pub(crate) mod optimize;
pub mod plan;
pub mod record_function;
pub mod run;
pub mod vector;
pub mod window;

pub use analyze::{
    Beside, OverRow, Reader, WithItem, items_in_order, not_at_top, plan, plan_beside, plan_item,
    plan_over, writes,
};
pub use plan::Plan;
pub use run::Run;

/// Whether a function of PostgreSQL's that gives several rows, or a row, is one here.
pub fn gives_rows(name: &str) -> bool {
    analyze::functions::is_series(name)
        || record_function::of_record(name).is_some()
        || crate::views::find(Some(crate::views::FUNCTIONS), name).is_some()
}
