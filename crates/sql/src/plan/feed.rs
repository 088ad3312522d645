//! A query whose rows feed a write or are to be locked, in whichever lane takes it.

use std::sync::Arc;

use crate::dict::Table;
use crate::olap;
use crate::plan::SelectPlan;
use crate::query;

#[derive(Debug)]
pub enum Feed {
    Tree(Arc<query::Plan>),
    General(Box<olap::Query>),
}

impl Feed {
    /// The tables that it reads, and the direct plans in it, which lock rows.
    pub fn reads(&self) -> (Vec<&Arc<Table>>, Vec<&SelectPlan>) {
        match self {
            Feed::Tree(plan) => (plan.tables.iter().map(|(t, _)| t).collect(), Vec::new()),
            Feed::General(query) => {
                let (tables, plans) = query.reads();
                (tables.iter().collect(), plans.collect())
            }
        }
    }
}
